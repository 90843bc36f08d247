"""Options that commands share: one module for each group, and how they are declared."""

from shaperouter_service.commands.options.common import CommonOptions, common_options
from shaperouter_service.commands.options.declaring import OFF, as_arguments, option
from shaperouter_service.commands.options.engine import (
    CompileModeName,
    EngineOptions,
    default_compile_threads,
    engine_options,
    parse_warm,
)
from shaperouter_service.commands.options.router import RouterOptions, router_options
from shaperouter_service.commands.options.tls import (
    TlsOptions,
    WorkerTlsOptions,
    tls_options,
    worker_tls_options,
)
from shaperouter_service.commands.options.worker_count import workers_option

__all__ = [
    "OFF",
    "CommonOptions",
    "CompileModeName",
    "EngineOptions",
    "RouterOptions",
    "TlsOptions",
    "WorkerTlsOptions",
    "as_arguments",
    "common_options",
    "default_compile_threads",
    "engine_options",
    "option",
    "parse_warm",
    "router_options",
    "tls_options",
    "worker_tls_options",
    "workers_option",
]

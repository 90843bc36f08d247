"""Options of every role: models, ports, shutdown, logs and traces."""

from dataclasses import dataclass
from pathlib import Path

import click

from shaperouter_service.checkpoints.model_locations import ModelLocation, parse_models
from shaperouter_service.commands.options.config_file import config_option
from shaperouter_service.commands.options.declaring import OFF, option, options_of
from shaperouter_service.commands.options.numbers import Number
from shaperouter_service.commands.options.variables import warn_of_unknown_variables
from shaperouter_service.errors import StartupError
from shaperouter_service.telemetry.logs import LogFormat, LogSettings, configure_logs
from shaperouter_service.telemetry.tracing import TracingChoice, configure_tracing


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """Values of `common_options`, whose help says what each is."""

    models: tuple[str, ...]
    model_repository: Path | None
    metrics_listen: str
    health_listen: str
    grace: float
    log_level: str
    log_format: LogFormat
    tracing: TracingChoice

    def configure_logs(self, **context: str) -> None:
        """Sets up logging with `context` in each line, and warns of unknown variables."""
        configure_logs(LogSettings(level=self.log_level, format=self.log_format, fields=context))
        warn_of_unknown_variables()

    def configure_tracing(self, role: str) -> None:
        """Sets up tracing, unless it is off.

        Raises:
            StartupError: The packages for tracing are not installed.
        """
        configure_tracing(self.tracing, role=role)

    @property
    def health_address(self) -> str | None:
        """Address of the health server; None if it is off."""
        return None if self.health_listen == OFF else self.health_listen

    def located_models(self) -> list[ModelLocation]:
        """Locates the models, and downloads them if needed.

        Raises:
            StartupError: A model is missing or unsafe, or there is none and none can be loaded.
        """
        self.check_models()
        return parse_models(self.models)

    def check_models(self) -> None:
        """Checks that there is a model, or can be one.

        Raises:
            StartupError: There is none and none can be loaded.
        """
        if not self.models and self.model_repository is None:
            raise StartupError("model: must name a model, unless --model-repository is given")


common_options = options_of(
    CommonOptions,
    "common",
    option(
        "--model",
        "models",
        multiple=True,
        default=("demo",),
        callback=lambda ctx, param, given: tuple(filter(None, given)),
        metavar="NAME[=DIRECTORY|HUB_ID[@REVISION]]",
        help="Model to serve: the NAME of a built-in model, or NAME=DIRECTORY or NAME=HUB_ID for "
        "a checkpoint in the Hugging Face layout. REVISION is a commit, a tag or a branch. Can be "
        "repeated; in the environment, separate values with spaces. An empty NAME starts without "
        "models, if there is a --model-repository.",
    ),
    option(
        "--model-repository",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="DIRECTORY",
        help="Directory with models that operators may load while the service runs, with "
        "`shaperouter load`: each in a directory of its own, or a .keras file. Routers and workers "
        "must all have it. Without it, models do not change at run time.",
    ),
    option(
        "--metrics-listen",
        default="127.0.0.1:9464",
        metavar="HOST:PORT",
        help="Address of the HTTP server that serves Prometheus metrics at /metrics.",
    ),
    option(
        "--health-listen",
        default=OFF,
        metavar="ADDRESS|off",
        help="Address of a second gRPC server that serves only health checks: HOST:PORT or "
        "unix:PATH. It speaks plain text and asks for no token, for probes that can use "
        "neither TLS nor tokens.",
    ),
    option(
        "--grace",
        type=Number(min=0),
        default=30.0,
        metavar="SECONDS",
        help="Time that running requests get to finish when the service stops.",
    ),
    option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        help="Minimum level of log lines. Logs go to standard error.",
    ),
    option(
        "--log-format",
        type=click.Choice(["auto", "console", "json"]),
        default="auto",
        help="Format of the logs. auto is console on a terminal and json elsewhere.",
    ),
    option(
        "--tracing",
        type=click.Choice(["off", "otlp"]),
        default="off",
        help="Where to send traces of requests. otlp is OpenTelemetry's protocol over gRPC and "
        "needs shaperouter-service[tracing]. OpenTelemetry's own variables set the endpoint "
        "and the sampling, e.g. OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_TRACES_SAMPLER.",
    ),
    config_option,
)

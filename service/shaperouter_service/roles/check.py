"""Checks a configuration of `serve` without starting it."""

import errno
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal

import numpy as np
import psutil

from shaperouter_service.auth import Clients
from shaperouter_service.checkpoints.functions import is_function
from shaperouter_service.checkpoints.model_locations import ModelLocation, parse_models
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.errors import StartupError
from shaperouter_service.functions.loading import check_compiles, load_function
from shaperouter_service.kernels import KernelsChoice, choose
from shaperouter_service.models import (
    Checkpoint,
    DeviceKind,
    DType,
    Whisper,
    read_decoder_start,
    read_default_options,
    read_family,
    read_transcripts,
    resolve_cache_dtype,
    resolve_dtype,
)
from shaperouter_service.models.encoders import encoder_ladders, is_encoder, read_encoder
from shaperouter_service.models.loading import Part, weight_bytes
from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.rpc.addresses import split_address
from shaperouter_service.rpc.tls import ServerTls
from shaperouter_service.rpc.unix_sockets import claimed
from shaperouter_service.system.devices import memory_limit
from shaperouter_service.system.sizes import format_size
from shaperouter_service.text import load_tokenizer
from shaperouter_service.worker.drafts import check_draft, check_no_draft
from shaperouter_service.worker.ladders import check_warm, first_graphs, make_ladders
from shaperouter_service.worker.memory_need import MemoryCheck, MemoryNeed, call_need


class Verdict(StrEnum):
    """The consequence of a finding for a start."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check.

    Attributes:
        verdict: Whether it prevents a start.
        subject: The subject of the check, e.g. `model demo`.
        message: What was found.
    """

    verdict: Verdict
    subject: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The settings of `serve` that can be wrong.

    Attributes:
        models: Values of `--model`.
        addresses: Addresses to listen on, by option; None if the option is off.
        tls: TLS settings of the public server; None means plain text.
        tokens: File of the clients that may call; None means that anyone may.
        dtype: Data type of the weights.
        kv_cache_dtype: Data type of caches.
        kernels: Whether to use the native kernels.
        drafts: Directories of draft models, by the names of the models that they propose for.
        slots: Requests that run at the same time, per model.
        max_length: Limit of the tokens of a sequence; None for as many as each model has.
        prefix_cache_bytes: Memory of a worker's prefix cache.
        max_graphs: Maximum number of graphs per worker.
        workers: Number of local worker processes; each has all weights.
        warm: Graphs to compile before a worker is ready.
        prefill_lengths: Chosen prefill lengths by model.
        decode_lengths: Chosen decode lengths by model.
        encode_lengths: Chosen encode lengths by model.
        compile_cache: Directory of the compile cache; None means no cache.
    """

    models: Sequence[str]
    addresses: Mapping[str, str | None]
    tls: ServerTls | None
    tokens: Path | None
    dtype: Literal["auto"] | DType
    kv_cache_dtype: Literal["auto", "float32", "bfloat16"]
    kernels: KernelsChoice
    drafts: Mapping[str, Path]
    slots: int
    max_length: int | None
    prefix_cache_bytes: int
    max_graphs: int
    workers: int
    warm: Sequence[Signature]
    prefill_lengths: Mapping[str, Sequence[int]]
    decode_lengths: Mapping[str, Sequence[int]]
    encode_lengths: Mapping[str, Sequence[int]]
    compile_cache: Path | None


@dataclass
class Findings:
    """The findings so far, in order."""

    items: list[Finding] = field(default_factory=list)

    def add(self, verdict: Verdict, subject: str, message: str) -> None:
        """Adds a finding."""
        self.items.append(Finding(verdict=verdict, subject=subject, message=message))

    @contextmanager
    def about(self, subject: str) -> Iterator[None]:
        """Turns a start-up error inside the context into a finding, and continues after it."""
        try:
            yield
        except StartupError as error:
            self.add(Verdict.ERROR, subject, str(error))


def check_setup(setup: Setup) -> list[Finding]:
    """Checks everything that can prevent a start of `serve`.

    Reads only the names, shapes and types of weights. Binds each port for a moment and tests the
    native kernels. Downloads a model only if it is not in the cache of the Hub.
    """
    findings = Findings()
    for option, address in setup.addresses.items():
        if address is not None:
            _check_address(findings, option, address, setup.addresses)
    if setup.tls:
        with findings.about("TLS"):
            setup.tls.credentials()
            findings.add(Verdict.OK, "TLS", f"certificate {setup.tls.cert}")
    if setup.tokens:
        with findings.about("tokens"):
            Clients(setup.tokens)
            findings.add(Verdict.OK, "tokens", str(setup.tokens))
    _check_compile_cache(findings, setup.compile_cache)
    instructions = choose(setup.kernels) if DeviceKind.present() is DeviceKind.CPU else None
    dtype: DType | None = None
    with findings.about("dtype"):
        dtype = resolve_dtype(setup.dtype, packed=instructions is not None)
        findings.add(Verdict.OK, "kernels", instructions or "none: XLA computes products")
    ladders: dict[str, Ladders | CallLadders] = {}
    memory = MemoryCheck({}, prefix_growth=setup.prefix_cache_bytes, cache_growth=None)
    weight_bytes = 0
    for spec in setup.models:
        name = spec.partition("=")[0]
        with findings.about(f"model {name}"):
            if name in ladders:
                raise StartupError("it is given twice")
            weight_bytes += _check_model(
                findings,
                setup,
                spec,
                ladders,
                dtype or "float32",
                memory=memory,
                packed=instructions is not None,
            )
    if len(ladders) == len(setup.models):
        with findings.about("graphs"):
            check_warm(ladders, setup.warm)
            first = first_graphs(ladders, max_graphs=setup.max_graphs)
            message = f"{len(first)} cover every request"
            if setup.warm:
                message += f", {len(setup.warm)} are declared with --warm"
            findings.add(Verdict.OK, "graphs", message)
    if DeviceKind.present() is DeviceKind.CPU:
        _check_memory(findings, weight_bytes * setup.workers)
    return findings.items


def _check_address(
    findings: Findings, option: str, address: str, addresses: Mapping[str, str | None]
) -> None:
    with findings.about(option):
        same = [other for other, each in addresses.items() if each == address and other != option]
        if same and not address.endswith(":0"):
            raise StartupError(f"{address} is the address of {same[0]}, too")
        if address.startswith(("unix:", "unix-abstract:")):
            _check_socket(findings, option, address)
            return
        host, port = split_address(address, option=option)
        try:
            family, *_, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with closing(socket.create_server(target[:2], family=family)):
                findings.add(Verdict.OK, option, address)
        except socket.gaierror as error:
            raise StartupError(f"cannot listen on {address}: {error.strerror}") from error
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                findings.add(Verdict.WARNING, option, f"{address} is in use now")
            else:
                reason = os.strerror(error.errno) if error.errno else str(error)
                raise StartupError(f"cannot listen on {address}: {reason}") from error


def _check_socket(findings: Findings, option: str, address: str) -> None:
    try:
        with claimed(address, option=option):
            findings.add(Verdict.OK, option, address)
    except StartupError as error:
        if not isinstance(error.__cause__, BlockingIOError):
            raise
        findings.add(Verdict.WARNING, option, f"{address} is in use now")


def _check_compile_cache(findings: Findings, directory: Path | None) -> None:
    if directory is None:
        findings.add(Verdict.OK, "compile cache", "off: every start compiles all graphs")
    elif not directory.exists():
        findings.add(Verdict.OK, "compile cache", f"{directory} will be created")
    else:
        # `open` logs the reason of a failure.
        cache = CompileCache.open(directory, max_bytes=0)
        if cache is None or not cache.writable:
            findings.add(Verdict.WARNING, "compile cache", f"{directory} cannot keep graphs")
        else:
            findings.add(Verdict.OK, "compile cache", str(directory))


def _check_model(
    findings: Findings,
    setup: Setup,
    spec: str,
    ladders: dict[str, Ladders | CallLadders],
    dtype: DType,
    *,
    memory: MemoryCheck,
    packed: bool,
) -> int:
    """Checks one model; returns the size of its weights in bytes.

    Adds its ladders to `ladders`, and its need of memory to that of the models before it: they must
    fit together.

    Raises:
        StartupError: The model cannot be served.
    """
    (source,) = parse_models([spec])
    if (call := call_need(source.directory, dtype, packed=packed)) is not None:
        memory.require(source.name, call)
    if is_function(source.directory):
        check_no_draft(source.name, setup.drafts, "function")
        return _check_function(findings, source, ladders)
    checkpoint = Checkpoint(source.directory, only_headers=True)
    if is_encoder(checkpoint.config):
        check_no_draft(source.name, setup.drafts, "text encoder")
        encoder, head, files = read_encoder(checkpoint)
        max_length = min(encoder.max_length, files.max_length or encoder.max_length)
        ladders[source.name] = encoder_ladders(max_length, packed=packed)
        return _check_checkpoint(
            findings,
            source,
            checkpoint,
            [encoder, head],
            name=encoder.name,
            dtype=dtype,
            max_length=max_length,
            packed=packed,
            redundant=encoder.redundant,
        )
    family = read_family(checkpoint).limited(setup.max_length)
    read_default_options(checkpoint, family)
    read_decoder_start(checkpoint, family)
    if isinstance(family, Whisper):
        read_transcripts(checkpoint, family)
    ladders[source.name] = make_ladders(
        source.name,
        family,
        slots=setup.slots,
        prefill_lengths=setup.prefill_lengths.get(source.name, ()),
        decode_lengths=setup.decode_lengths.get(source.name, ()),
        encode_lengths=setup.encode_lengths.get(source.name, ()),
    )
    of_draft = None
    if source.name in setup.drafts:
        draft = setup.drafts[source.name]
        of_draft = check_draft(source.name, checkpoint, family, draft, packed=packed)
    cache_dtype = resolve_cache_dtype(setup.kv_cache_dtype, dtype, packed=packed)
    need = MemoryNeed.of(
        checkpoint,
        family,
        dtype=dtype,
        packed=packed,
        number_bytes=cache_dtype.size,
        slots=setup.slots,
        draft=of_draft,
    )
    memory.require(source.name, need)
    return _check_checkpoint(
        findings,
        source,
        checkpoint,
        [family],
        name=family.name,
        dtype=dtype,
        max_length=family.max_length,
        packed=packed,
        redundant=family.redundant,
    )


def _check_checkpoint(
    findings: Findings,
    source: ModelLocation,
    checkpoint: Checkpoint,
    parts: Sequence[Part],
    *,
    name: str,
    dtype: DType,
    max_length: int,
    packed: bool,
    redundant: re.Pattern[str],
) -> int:
    """Checks the tensors of a checkpoint and its tokenizer; see `_check_model`."""
    subject = f"model {source.name}"
    parameters = sum(
        array.size
        for part in parts
        for _, array in part.read_weights(checkpoint, np.dtype(np.float32))
    )
    size = sum(weight_bytes(checkpoint, part, dtype, packed=packed) for part in parts)
    tokenizer = load_tokenizer(source.directory)
    findings.add(
        Verdict.OK,
        subject,
        f"{name}, {parameters:,} parameters, about "
        f"{format_size(size)} as {dtype}, up to {max_length} tokens, "
        f"{'tokenizer ' + tokenizer.name if tokenizer else 'no tokenizer: token ids only'}",
    )
    if unused := sorted(each for each in checkpoint.unread if not redundant.fullmatch(each)):
        findings.add(
            Verdict.WARNING,
            subject,
            f"{len(unused)} tensors of the checkpoint are not used, such as {unused[0]}",
        )
    return size


def _check_function(
    findings: Findings, source: ModelLocation, ladders: dict[str, Ladders | CallLadders]
) -> int:
    """Loads and tries a function as a worker does; see `_check_model`."""
    function, sizes = load_function(source.name, source.directory)
    if function.compiled:
        check_compiles(function, sizes, None)
    ladders[source.name] = function.ladders
    subject = f"model {source.name}"
    findings.add(
        Verdict.OK,
        subject,
        f"{function.family} function, {function.parameters:,} parameters, "
        f"{format_size(function.weight_bytes)}, "
        f"{'compiled' if function.compiled else 'not compiled by XLA'}",
    )
    exact = [axis.name for axis in function.ladders.axes if axis.ladder is None]
    if function.ladders.rows is None and function.spec.batch is not None:
        exact.insert(0, function.spec.batch.name)
    if exact:
        findings.add(
            Verdict.WARNING,
            subject,
            f"padding changes answers along {', '.join(exact)}: each size has a graph of its own",
        )
    return function.weight_bytes


def _check_memory(findings: Findings, weight_bytes: int) -> None:
    available = min(psutil.virtual_memory().available, memory_limit() or sys.maxsize)
    message = (
        f"weights take about {format_size(weight_bytes)}, {format_size(available)} are available"
    )
    findings.add(Verdict.OK if weight_bytes < available else Verdict.WARNING, "memory", message)

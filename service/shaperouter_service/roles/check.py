"""Whether `serve` would start as configured: everything it refuses, found without starting it."""

import errno
import os
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
from shaperouter_service.checkpoints.sources import parse_models
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.errors import StartupError
from shaperouter_service.kernels import KernelsChoice, choose
from shaperouter_service.models import (
    Checkpoint,
    DeviceKind,
    DType,
    Role,
    Whisper,
    read_decoder_start,
    read_default_options,
    read_family,
    read_transcripts,
    resolve_dtype,
    unused_tensors,
)
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.rpc.addresses import split_address
from shaperouter_service.rpc.tls import ServerTls
from shaperouter_service.system.devices import memory_limit
from shaperouter_service.system.sizes import format_size
from shaperouter_service.text import load_tokenizer
from shaperouter_service.worker.ladders import check_warm, first_graphs, make_ladders


class Verdict(StrEnum):
    """What a finding means for a start."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        verdict: Whether it stands in the way of a start.
        subject: What was looked at, e.g. `model demo`.
        message: What was found.
    """

    verdict: Verdict
    subject: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What `serve` is configured with, as far as it can be wrong.

    Attributes:
        models: As `--model` takes them.
        addresses: Of all ports, by the option that names each; None where there is none.
        tls: What the public server shows and asks; None is plain text.
        tokens: File of the clients that may call; None lets all call.
        dtype: Type of weights.
        kernels: Whether the native kernels are to be used.
        slots: Requests that run at a time, for each model.
        max_graphs: Most graphs of a worker.
        workers: Local worker processes, each of which has all weights.
        warm: Graphs to make before a worker is ready.
        prefill_lengths: Chosen rungs of models, by name.
        decode_lengths: Likewise.
        encode_lengths: Likewise.
        compile_cache: Directory of the compile cache; None is without.
    """

    models: Sequence[str]
    addresses: Mapping[str, str | None]
    tls: ServerTls | None
    tokens: Path | None
    dtype: Literal["auto"] | DType
    kernels: KernelsChoice
    slots: int
    max_graphs: int
    workers: int
    warm: Sequence[Signature]
    prefill_lengths: Mapping[str, Sequence[int]]
    decode_lengths: Mapping[str, Sequence[int]]
    encode_lengths: Mapping[str, Sequence[int]]
    compile_cache: Path | None


@dataclass
class Findings:
    """What was found so far, in order."""

    items: list[Finding] = field(default_factory=list)

    def add(self, verdict: Verdict, subject: str, message: str) -> None:
        """Notes one finding."""
        self.items.append(Finding(verdict=verdict, subject=subject, message=message))

    @contextmanager
    def about(self, subject: str) -> Iterator[None]:
        """Notes a start-up error inside of the context, and goes on behind it."""
        try:
            yield
        except StartupError as error:
            self.add(Verdict.ERROR, subject, str(error))


def check_setup(setup: Setup) -> list[Finding]:
    """Looks at everything that can keep `serve` from starting.

    Of weights only names, shapes and types are read. Ports are bound for a moment, and the native
    kernels are tried; nothing else happens, and nothing is downloaded that is here already.
    """
    findings = Findings()
    for option, address in setup.addresses.items():
        if address is not None:
            _check_address(findings, option, address)
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
    ladders: dict[str, Ladders] = {}
    weight_bytes = 0
    for spec in setup.models:
        name = spec.partition("=")[0]
        with findings.about(f"model {name}"):
            weight_bytes += _check_model(
                findings, setup, spec, ladders, dtype or "float32", packed=instructions is not None
            )
    if len(ladders) == len(setup.models):
        with findings.about("graphs"):
            check_warm(ladders, setup.warm)
            first = first_graphs(ladders, max_graphs=setup.max_graphs)
            message = f"{len(first)} cover every request"
            if setup.warm:
                message += f", {len(setup.warm)} are declared with --warm"
            findings.add(Verdict.OK, "graphs", message)
    _check_memory(findings, weight_bytes * setup.workers)
    return findings.items


def _check_address(findings: Findings, option: str, address: str) -> None:
    if address.startswith(("unix:", "unix-abstract:")):
        return
    with findings.about(option):
        host, port = split_address(address, option=option)
        try:
            family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with closing(socket.create_server(place[:2], family=family)):
                findings.add(Verdict.OK, option, address)
        except socket.gaierror as error:
            raise StartupError(f"cannot listen on {address}: {error.strerror}") from error
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                findings.add(Verdict.WARNING, option, f"{address} is in use now")
            else:
                reason = os.strerror(error.errno) if error.errno else str(error)
                raise StartupError(f"cannot listen on {address}: {reason}") from error


def _check_compile_cache(findings: Findings, directory: Path | None) -> None:
    if directory is None:
        findings.add(Verdict.OK, "compile cache", "off: every start compiles anew")
    elif not directory.exists():
        findings.add(Verdict.OK, "compile cache", f"{directory} will be made")
    else:
        # What is wrong with it, it logs.
        cache = CompileCache.open(directory, max_bytes=0)
        if cache is None or not cache.writable:
            findings.add(Verdict.WARNING, "compile cache", f"{directory} cannot keep graphs")
        else:
            findings.add(Verdict.OK, "compile cache", str(directory))


def _check_model(
    findings: Findings,
    setup: Setup,
    spec: str,
    ladders: dict[str, Ladders],
    dtype: DType,
    *,
    packed: bool,
) -> int:
    """Looks at one model, and notes its ladders; returns about how many bytes its weights take.

    Raises:
        StartupError: It cannot be served.
    """
    (source,) = parse_models([spec])
    subject = f"model {source.name}"
    checkpoint = Checkpoint(source.directory, only_headers=True)
    family = read_family(checkpoint)
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
    parameters = weight_bytes = 0
    for weight, array in family.read_weights(checkpoint, np.dtype(np.float32)):
        is_matrix = array.ndim == 2 and family.roles.get(weight, Role.LINEAR) is not Role.PLAIN
        parameters += array.size
        weight_bytes += array.size * (_SIZES[dtype] if is_matrix or not packed else 4)
    tokenizer = load_tokenizer(source.directory)
    findings.add(
        Verdict.OK,
        subject,
        f"{family.name}, {parameters:,} parameters, about "
        f"{format_size(weight_bytes)} as {dtype}, up to {family.max_length} tokens, "
        f"{'tokenizer ' + tokenizer.name if tokenizer else 'no tokenizer: token ids only'}",
    )
    if unused := unused_tensors(checkpoint, family):
        findings.add(
            Verdict.WARNING,
            subject,
            f"{len(unused)} tensors of the checkpoint are not used, such as {unused[0]}",
        )
    return weight_bytes


_SIZES: Mapping[DType, int] = {"float32": 4, "bfloat16": 2, "int8": 1}


def _check_memory(findings: Findings, weight_bytes: int) -> None:
    there = min(psutil.virtual_memory().available, memory_limit() or sys.maxsize)
    message = f"weights take about {format_size(weight_bytes)}, {format_size(there)} are available"
    findings.add(Verdict.OK if weight_bytes < there else Verdict.WARNING, "memory", message)

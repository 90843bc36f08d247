"""What the router itself costs a request: CPU time, and requests a second on one core.

A router as its own process on a core of its own, over a worker that computes nothing: it is another
process, says the same 32 tokens to everybody in chunks of 8, and has all graphs of its ladders. A
client in a third process keeps so many requests under way. With --profile the router runs under
cProfile instead, and where its time goes is printed.

Run by ``make bench-router``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import pstats
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import psutil
from grpc import aio
from rich.console import Console
from rich.table import Table

from harness.fake_worker import FakeWorker
from harness.waiting import TIMEOUT, wait_until
from shaperouter.v1 import (
    generation_pb2,
    generation_pb2_grpc,
    model_pb2,
    signature_pb2,
    worker_pb2,
    worker_pb2_grpc,
)
from shaperouter_service.rpc.server import listen, make_server

MODEL = "tiny"
# A real tokenizer: text in and text out is part of what a router does.
TOKENIZER = Path(__file__).parents[2] / "service" / "shaperouter_service" / "builtin" / "demo"
VOCABULARY = 4096
PROMPT = "The router sends each request to a worker whose graph covers it."
FIRST_TOKEN, TOKENS, CHUNK = 300, 32, 8
CONCURRENCIES = (1, 32, 256)
METHODS = ("unary", "stream")
WARM_UP_SECONDS = 2.0
# Targets.
MOST_CPU_MILLISECONDS, FEWEST_REQUESTS = 1.0, 1000
# Of a core: a router that takes less waits for others.
BUSY = 0.95
PROFILE_LINES = 30

console = Console(highlight=False)


class FastWorker(FakeWorker):
    """A fake worker that keeps nothing of what it is asked, behind a socket that is not cut."""

    def __init__(self, address: Path) -> None:
        super().__init__("worker-0", address, [MODEL])
        for model in self.models:
            model.vocab_size = VOCABULARY
            self.graphs += map(self.graph, _signatures(model.ladders))
        tokens = range(FIRST_TOKEN, FIRST_TOKEN + TOKENS)
        self.script = [self.tokens(*tokens[at : at + CHUNK]) for at in range(0, TOKENS, CHUNK)]
        self.script.append(self.completion())

    async def Run(  # noqa: N802 (gRPC's name)
        self, request: worker_pb2.RunRequest, context: Any
    ) -> AsyncIterator[worker_pb2.RunResponse]:
        """Says the same to everybody."""
        for step in self.script:
            yield step

    async def serve(self) -> None:
        """Serves for ever."""
        server = make_server([worker_pb2.DESCRIPTOR.services_by_name["WorkerService"]])
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(self, server)
        listen(server, self.address)
        await server.start()
        await server.wait_for_termination()


def _signatures(ladders: model_pb2.Ladders) -> Iterator[signature_pb2.Signature]:
    """All there are."""
    for rows, length in product(ladders.prefill_rows, ladders.prefill_lengths):
        yield signature_pb2.Signature(
            model=MODEL,
            kind=signature_pb2.GRAPH_KIND_PREFILL,
            rows=rows,
            length=length,
            beams=1,
        )
    for lane in ladders.lanes:
        for rows, length in product(lane.decode_rows, lane.decode_lengths):
            yield signature_pb2.Signature(
                model=MODEL,
                kind=signature_pb2.GRAPH_KIND_DECODE,
                rows=rows,
                length=length,
                beams=lane.beams,
            )


def serve_worker(address: Path) -> None:
    """Is the worker's process."""
    asyncio.run(FastWorker(address).serve())


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a client does.

    Attributes:
        address: Of the router.
        router: Its process.
        method: One of `METHODS`.
        concurrency: Requests under way.
        seconds: How long it is measured, after a warm-up.
    """

    address: str
    router: int
    method: str
    concurrency: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What was measured.

    Attributes:
        requests: Answered.
        seconds: Meanwhile.
        cpu_seconds: Of the router, in user and system mode.
        latencies: Seconds of each request.
    """

    requests: int
    seconds: float
    cpu_seconds: float
    latencies: Sequence[float]

    @property
    def cpu_milliseconds(self) -> float:
        """Of the router, for a request."""
        return 1e3 * self.cpu_seconds / self.requests

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds

    @property
    def core_share(self) -> float:
        """Of a core that the router took."""
        return self.cpu_seconds / self.seconds

    def latency(self, share: float) -> float:
        """Seconds within which this share was answered."""
        return sorted(self.latencies)[int(share * (len(self.latencies) - 1))]


def drive(load: Load) -> Figures:
    """Is the client's process."""
    return asyncio.run(_drive(load))


async def _drive(load: Load) -> Figures:
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    ended = False

    async def one_after_the_other(call: Any) -> None:
        while not ended:
            started = loop.time()
            await call()
            latencies.append(loop.time() - started)

    async with aio.insecure_channel(load.address) as channel:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)
        call = {"unary": _unary, "stream": _stream}[load.method]
        tasks = [
            asyncio.create_task(one_after_the_other(lambda: call(stub)))
            for _ in range(load.concurrency)
        ]
        await asyncio.sleep(WARM_UP_SECONDS)
        latencies.clear()
        started, cpu = loop.time(), cpu_seconds(load.router)
        await asyncio.sleep(load.seconds)
        figures = Figures(
            requests=len(latencies),
            seconds=loop.time() - started,
            cpu_seconds=cpu_seconds(load.router) - cpu,
            latencies=tuple(latencies),
        )
        ended = True
        await asyncio.gather(*tasks)
    return figures


async def _unary(stub: Any) -> None:
    response = await stub.Generate(
        generation_pb2.GenerateRequest(
            text=PROMPT, options=generation_pb2.GenerationOptions(max_new_tokens=TOKENS)
        )
    )
    assert len(response.sequences[0].token_ids) == TOKENS


async def _stream(stub: Any) -> None:
    tokens = 0
    async for event in stub.GenerateStream(
        generation_pb2.GenerateStreamRequest(
            text=PROMPT, options=generation_pb2.GenerationOptions(max_new_tokens=TOKENS)
        )
    ):
        tokens += len(event.delta.token_ids)
    assert tokens == TOKENS


def cpu_seconds(pid: int) -> float:
    """That a process has taken."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


@contextlib.contextmanager
def pinned(cores: set[int]) -> Iterator[None]:
    """Has processes that are started inside of the context run on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def routing(
    directory: Path, core: int, *, profile: Path | None = None
) -> Iterator[tuple[str, int]]:
    """A router on a core of its own; yields its address and process."""
    profiler = ["-m", "cProfile", "-o", str(profile)] if profile else []
    address = f"unix:{directory / 'router'}"
    with pinned({core}), (directory / "router.log").open("w") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                *profiler,
                "-m",
                "shaperouter_service",
                "router",
                f"--model={MODEL}={TOKENIZER}",
                f"--worker=unix:{directory / 'worker'}",
                f"--listen={address}",
                "--metrics-listen=127.0.0.1:0",
            ],
            stderr=log,
            # More wait here than the worker has slots for.
            env=os.environ | {"SHAPEROUTER_MAX_QUEUE_SECONDS": "1000000"},
        )
    try:
        wait_until(lambda: _ready(directory / "router.log", process))
        yield address, process.pid
    finally:
        process.terminate()
        process.wait(TIMEOUT)


def _ready(log: Path, process: subprocess.Popen[bytes]) -> bool:
    text = log.read_text()
    if process.poll() is not None:
        raise RuntimeError(f"the router has ended: {text}")
    return '"event": "ready"' in text


@contextlib.contextmanager
def working(directory: Path) -> Iterator[None]:
    """The worker's process."""
    process = multiprocessing.get_context("spawn").Process(
        target=serve_worker, args=[directory / "worker"], daemon=True
    )
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="make bench-router", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="of each measurement (default: 10)"
    )
    parser.add_argument(
        "--profile", action="store_true", help="tell where the router's time goes, instead"
    )
    arguments = parser.parse_args()
    core, *others = sorted(os.sched_getaffinity(0))
    spawn = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as name,
        pinned(set(others) or {core}),
        working(Path(name)),
        ProcessPoolExecutor(1, spawn) as client,
    ):
        if arguments.profile:
            _profile(client, Path(name), core, arguments.seconds)
            return 0
        return _measure(client, Path(name), core, arguments.seconds)


def _measure(client: ProcessPoolExecutor, directory: Path, core: int, seconds: float) -> int:
    table = Table(
        "",
        "under way",
        "CPU ms",
        "requests/s",
        "of the core",
        "p50 ms",
        "p99 ms",
        title="The router on one core",
        caption=f"Where the router takes less than {BUSY:.0%} of its core, worker or client were "
        "too slow to keep it busy: it could answer more.",
    )
    found = {}
    with routing(directory, core) as (address, pid):
        for method, concurrency in product(METHODS, CONCURRENCIES):
            with console.status(f"{method}, {concurrency} under way"):
                load = Load(
                    address=address,
                    router=pid,
                    method=method,
                    concurrency=concurrency,
                    seconds=seconds,
                )
                figures = found[method, concurrency] = client.submit(drive, load).result()
            table.add_row(
                method,
                str(concurrency),
                f"{figures.cpu_milliseconds:.2f}",
                f"{figures.rate:.0f}",
                f"{figures.core_share:.0%}",
                f"{1e3 * figures.latency(0.5):.1f}",
                f"{1e3 * figures.latency(0.99):.1f}",
            )
    console.print(table)
    for method in METHODS:
        most = max(figures.cpu_milliseconds for (by, _), figures in found.items() if by == method)
        best = max(figures.rate for (by, _), figures in found.items() if by == method)
        console.print(
            f"{method}: at most {MOST_CPU_MILLISECONDS:g} ms of CPU a request: {most:.2f}, "
            f"{'met' if most <= MOST_CPU_MILLISECONDS else 'missed'}; at least "
            f"{FEWEST_REQUESTS} requests a second: {best:.0f}, "
            f"{'met' if best >= FEWEST_REQUESTS else 'missed'}"
        )
    return 0


def _profile(client: ProcessPoolExecutor, directory: Path, core: int, seconds: float) -> None:
    for method in METHODS:
        profile = directory / f"{method}.profile"
        with routing(directory, core, profile=profile) as (address, pid):
            load = Load(address=address, router=pid, method=method, concurrency=32, seconds=seconds)
            figures = client.submit(drive, load).result()
        console.print(f"{method}: {figures.requests} requests, under the profiler:")
        stats = pstats.Stats(str(profile), stream=sys.stdout).strip_dirs()
        stats.sort_stats("tottime").print_stats(PROFILE_LINES)


if __name__ == "__main__":
    sys.exit(main())

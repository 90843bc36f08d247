"""The client's process, which keeps a number of requests running and reports their times."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil
from grpc import aio

from common.tables import quantile
from shaperouter.v1 import generation_pb2, generation_pb2_grpc

from .answers import TOKENS

METHODS = ("unary", "stream")
PROMPT = "The router sends each request to a worker whose graph covers it."
WARM_UP_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Load:
    """The settings of a client.

    Attributes:
        address: Address of the router.
        router: Process id of the router.
        worker: Process id of the worker.
        method: One of `METHODS`.
        concurrency: Number of running requests.
        seconds: Length of the measurement, after a warm-up.
    """

    address: str
    router: int
    worker: int
    method: str
    concurrency: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The measurements.

    Attributes:
        requests: Number of answered requests.
        seconds: Length of the measurement.
        cpu_seconds: CPU time of the router, in user and system mode.
        worker_cpu_seconds: CPU time of the worker, likewise.
        latencies: Latency of each request in seconds.
    """

    requests: int
    seconds: float
    cpu_seconds: float
    worker_cpu_seconds: float
    latencies: Sequence[float]

    def router_milliseconds(self) -> float:
        """The router's CPU time for a request."""
        return 1e3 * self.cpu_seconds / self.requests

    def worker_milliseconds(self) -> float:
        """The worker's CPU time for a request."""
        return 1e3 * self.worker_cpu_seconds / self.requests

    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    def latency_milliseconds(self, share: float) -> float:
        """Milliseconds within which this share was answered."""
        return 1e3 * quantile(self.latencies, share)


def drive(load: Load) -> Figures:
    """Runs the client's process."""
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
        started = loop.time()
        cpu, worker_cpu = _cpu_seconds(load.router), _cpu_seconds(load.worker)
        await asyncio.sleep(load.seconds)
        figures = Figures(
            requests=len(latencies),
            seconds=loop.time() - started,
            cpu_seconds=_cpu_seconds(load.router) - cpu,
            worker_cpu_seconds=_cpu_seconds(load.worker) - worker_cpu,
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


def _cpu_seconds(pid: int) -> float:
    """The CPU time of a process."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)

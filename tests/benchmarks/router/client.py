"""The client's process, which keeps a number of requests running and reports their times."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import psutil
from grpc import aio

from common.tables import quantile
from shaperouter.v1 import generation_pb2, generation_pb2_grpc

from .answers import CHUNK, MODEL, TOKENS

UNARY, STREAM = "unary", "stream"
COMPLETION, COMPLETION_STREAM, CHAT_STREAM = "completion", "completion stream", "chat stream"
METHODS = (UNARY, STREAM, COMPLETION, COMPLETION_STREAM, CHAT_STREAM)
PROMPT = "The router sends each request to a worker whose graph covers it."
WARM_UP_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Load:
    """The settings of a client.

    Attributes:
        address: Address of the router's gRPC server.
        http_port: Its port for HTTP; 0 for none.
        router: Process id of the router.
        worker: Process id of the worker.
        method: One of `METHODS`.
        concurrency: Number of running requests.
        seconds: Length of the measurement, after a warm-up.
        tokens: Number of tokens of each answer.
    """

    address: str
    http_port: int
    router: int
    worker: int
    method: str
    concurrency: int
    seconds: float
    tokens: int = TOKENS


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The measurements.

    Attributes:
        requests: Number of answered requests.
        seconds: Length of the measurement.
        cpu_seconds: CPU time of the router, in user and system mode.
        worker_cpu_seconds: CPU time of the worker, likewise.
        latencies: Latency of each request in seconds.
        chunks: Number of chunks that have arrived, of all requests.
    """

    requests: int
    seconds: float
    cpu_seconds: float
    worker_cpu_seconds: float
    latencies: Sequence[float]
    chunks: int

    def router_milliseconds(self) -> float:
        """The router's CPU time for a request."""
        return 1e3 * self.cpu_seconds / self.requests

    def router_chunk_milliseconds(self) -> float:
        """The router's CPU time for a chunk, the rest of its request included."""
        return 1e3 * self.cpu_seconds / self.chunks

    def worker_milliseconds(self) -> float:
        """The worker's CPU time for a request."""
        return 1e3 * self.worker_cpu_seconds / self.requests

    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    def latency_milliseconds(self, share: float) -> float:
        """Milliseconds within which this share was answered."""
        return 1e3 * quantile(self.latencies, share)


# Sends one request and returns when it is answered; takes what is called at each chunk.
Call: TypeAlias = Callable[[Callable[[], None]], Awaitable[None]]


def drive(load: Load) -> Figures:
    """Runs the client's process."""
    return asyncio.run(_drive(load))


async def _drive(load: Load) -> Figures:
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    chunks = 0
    ended = False

    def count() -> None:
        nonlocal chunks
        chunks += 1

    async def one_after_the_other() -> None:
        async with connect(load) as call:
            while not ended:
                started = loop.time()
                await call(count)
                latencies.append(loop.time() - started)

    async with _connecting(load) as connect:
        tasks = [asyncio.create_task(one_after_the_other()) for _ in range(load.concurrency)]
        await asyncio.sleep(WARM_UP_SECONDS)
        latencies.clear()
        chunks = 0
        started = loop.time()
        cpu, worker_cpu = _cpu_seconds(load.router), _cpu_seconds(load.worker)
        await asyncio.sleep(load.seconds)
        figures = Figures(
            requests=len(latencies),
            seconds=loop.time() - started,
            cpu_seconds=_cpu_seconds(load.router) - cpu,
            worker_cpu_seconds=_cpu_seconds(load.worker) - worker_cpu,
            latencies=tuple(latencies),
            chunks=chunks,
        )
        ended = True
        await asyncio.gather(*tasks)
    return figures


@contextlib.asynccontextmanager
async def _connecting(load: Load) -> AsyncIterator[Any]:
    """Yields a caller's connection: all callers share one of gRPC, and each has its own of HTTP."""
    if load.method not in (UNARY, STREAM):
        yield _http
        return
    async with aio.insecure_channel(load.address) as channel:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)
        call = {UNARY: _unary, STREAM: _stream}[load.method]

        @contextlib.asynccontextmanager
        async def connect(load: Load) -> AsyncIterator[Call]:
            yield lambda count: call(stub, load.tokens, count)

        yield connect


async def _unary(stub: Any, tokens: int, count: Callable[[], None]) -> None:
    response = await stub.Generate(
        generation_pb2.GenerateRequest(
            text=PROMPT, options=generation_pb2.GenerationOptions(max_new_tokens=tokens)
        )
    )
    count()
    assert len(response.sequences[0].token_ids) == tokens


async def _stream(stub: Any, tokens: int, count: Callable[[], None]) -> None:
    received = 0
    async for event in stub.GenerateStream(
        generation_pb2.GenerateStreamRequest(
            text=PROMPT, options=generation_pb2.GenerationOptions(max_new_tokens=tokens)
        )
    ):
        if event.HasField("delta"):
            count()
            received += len(event.delta.token_ids)
    assert received == tokens


@contextlib.asynccontextmanager
async def _http(load: Load) -> AsyncIterator[Call]:
    """Connects a caller over HTTP, who keeps the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", load.http_port)
    request = _request(load)

    async def call(count: Callable[[], None]) -> None:
        writer.write(request)
        header = await reader.readuntil(b"\r\n\r\n")
        assert header.startswith(b"HTTP/1.1 200"), header
        fields = dict(
            line.lower().split(b": ", 1) for line in header.splitlines()[1:] if b": " in line
        )
        if size := fields.get(b"content-length"):
            answer = json.loads(await reader.readexactly(int(size)))
            count()
            assert answer["usage"]["completion_tokens"] == load.tokens
            return
        chunks, last = 0, b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            last = (await reader.readexactly(size + 2))[:size]
            # Matches the texts of new tokens, but not the first event of a chat or the last event
            # of a choice.
            texts = last.count(b'"finish_reason":null') - last.count(b'"role":')
            for _ in range(texts):
                count()
            chunks += texts
        await reader.readexactly(2)
        assert last.endswith(b"data: [DONE]\n\n"), last
        # A worker joins chunks that wait to be sent.
        assert 0 < chunks <= load.tokens // CHUNK, chunks

    try:
        yield call
    finally:
        writer.close()


def _request(load: Load) -> bytes:
    """The bytes of a request over HTTP."""
    path, asked = "/v1/completions", {"prompt": PROMPT}
    if load.method == CHAT_STREAM:
        path, asked = "/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT}]}
    streams = load.method != COMPLETION
    body = json.dumps({"model": MODEL, "max_tokens": load.tokens, "stream": streams, **asked})
    lines = [
        f"POST {path} HTTP/1.1",
        "host: router",
        "content-type: application/json",
        f"content-length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", body]).encode()


def _cpu_seconds(pid: int) -> float:
    """The CPU time of a process."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)

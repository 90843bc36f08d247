"""A real service on this machine, for measured costs and for comparisons."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import psutil

from harness.service import Service, serving
from shaperouter import AsyncClient, Graph, Model
from shaperouter_service.routing.ladders import Ladders

from .cores import limited
from .costs import all_graphs
from .traffic import Request

MODEL, SLOTS = "demo", 8
# Ids of ordinary tokens, for prompts.
FIRST_TOKEN, LAST_TOKEN = 10, 8000
CACHE = Path(__file__).parents[2] / "build" / "simulation-cache"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answered request; times in seconds since it was sent.

    Attributes:
        sent: When it was sent, in seconds since the first could be.
        first: When its first token came.
        end: When it had ended.
        chunks: Number of messages with tokens.
        decode: Seconds from its first token to its last, by the worker's clock.
        way: Seconds that it was neither in its worker's queue nor computed.
    """

    sent: float
    first: float
    end: float
    chunks: int
    decode: float
    way: float


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The answers to some traffic, and what it cost.

    Attributes:
        answers: One for each request.
        seconds: From the first request to the last answer.
        router_seconds: CPU time of the router.
        others: Cores that processes used which have nothing to do with it, on average. They disturb
            the measurement.
    """

    answers: Sequence[Answer]
    seconds: float
    router_seconds: float
    others: float

    def first_token(self, percentile: float) -> float:
        """A percentile of the seconds to the first token."""
        return float(np.percentile([answer.first for answer in self.answers], percentile))

    def whole(self, percentile: float) -> float:
        """A percentile of the seconds to the end."""
        return float(np.percentile([answer.end for answer in self.answers], percentile))

    @property
    def mean(self) -> float:
        """The mean of the seconds to the end."""
        return fmean(answer.end for answer in self.answers)


class Driver:
    """Sends requests to a service whose workers compile nothing."""

    def __init__(self, service: Service, client: AsyncClient) -> None:
        self._client = client
        self._router = psutil.Process(service.process.pid)
        self._start = 0.0
        self._rng = np.random.default_rng(0)

    async def graphs(self) -> list[Graph]:
        """The present graphs."""
        return await self._client.graphs()

    async def models(self) -> list[Model]:
        """The models."""
        return await self._client.models()

    async def open(self, requests: Sequence[Request]) -> Answers:
        """Sends each request at its time."""

        async def on_time(request: Request) -> Answer:
            await asyncio.sleep(request.at - (time.perf_counter() - self._start))
            return await self.send(request)

        return await self.measured([on_time(request) for request in requests])

    async def closed(self, requests: Sequence[Request], callers: int, seconds: float) -> Answers:
        """Lets callers send one request after another; returns answers that came in time."""
        left = iter(requests)
        answers: list[Answer] = []

        async def call() -> Answer:
            answer = None
            while time.perf_counter() - self._start < seconds:
                answer = await self.send(next(left))
                answers.append(answer)
            assert answer
            return answer

        measured = await self.measured([call() for _ in range(callers)])
        in_time = [answer for answer in answers if answer.sent + answer.end <= seconds]
        share = len(in_time) / len(answers)
        return Answers(
            answers=in_time,
            seconds=seconds,
            router_seconds=measured.router_seconds * share,
            others=measured.others,
        )

    async def measured(self, calls: Sequence[object]) -> Answers:
        """Awaits calls, and measures what they cost."""
        workers = self._router.children(recursive=True)

        def used() -> np.ndarray:
            caller = time.process_time()
            return np.array(
                [self._cpu_seconds([self._router]), caller, self._cpu_seconds(workers), _in_use()]
            )

        before, self._start = used(), time.perf_counter()
        answers = await asyncio.gather(*calls)  # type: ignore[call-overload]
        seconds = time.perf_counter() - self._start
        router, caller, working, everything = (used() - before).tolist()
        return Answers(
            answers=answers,
            seconds=seconds,
            router_seconds=router,
            others=max(0.0, everything - router - caller - working) / seconds,
        )

    def _cpu_seconds(self, processes: Sequence[psutil.Process]) -> float:
        times = [process.cpu_times() for process in processes]
        return float(sum(each.user + each.system for each in times))

    async def send(self, request: Request) -> Answer:
        """Sends a request and reads its answer."""
        # No prompt begins as another one does, so that workers read all of each.
        prompt = self._rng.integers(FIRST_TOKEN, LAST_TOKEN, size=request.prompt).tolist()
        sent, first, chunks = time.perf_counter(), None, 0
        stream = self._client.stream(
            prompt, max_new_tokens=request.makes, min_new_tokens=request.makes
        )
        async with stream as deltas:
            async for delta in deltas:
                if delta.token_ids:
                    chunks += 1
                    first = first or time.perf_counter()
        assert first
        end, timings = time.perf_counter() - sent, stream.result.timings
        return Answer(
            sent=sent - self._start,
            first=first - sent,
            end=end,
            chunks=chunks,
            decode=timings.decode_seconds,
            way=end - timings.queue_seconds - timings.prefill_seconds - timings.decode_seconds,
        )


def _in_use() -> float:
    """CPU time that this machine has not been idle, in seconds of one core."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


@contextlib.asynccontextmanager
async def driving(
    workers: int, ladders: Ladders, cores: float | None = None
) -> AsyncIterator[Driver]:
    """A service whose workers have one thread each, and all graphs that requests may need.

    Args:
        workers: Number of workers.
        ladders: Their ladders.
        cores: The part of a core that each may use once it is ready; None for all it can get.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    signatures = all_graphs(ladders, MODEL)
    arguments = [
        f"--model={MODEL}",
        f"--workers={workers}",
        f"--slots={SLOTS}",
        "--threads=1",
        "--compile-mode=frozen",
        "--max-graphs=200",
        *(f"--warm={signature}" for signature in signatures),
    ]
    with serving(*arguments, env={"SHAPEROUTER_COMPILE_CACHE": str(CACHE)}) as service:
        async with AsyncClient(service.address) as client:
            async with client.watch_graphs() as lists:
                async for graphs in lists:
                    if len(graphs) >= workers * len(signatures):
                        break
            pids = [int(event["pid"]) for event in service.events("worker started")]
            with limited(pids, cores) if cores else contextlib.nullcontext():
                yield Driver(service, client)

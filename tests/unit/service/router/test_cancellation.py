"""Cancellations and deadlines reach the worker, and leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from grpc import StatusCode

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Until = Callable[[Callable[[], bool]], Awaitable[None]]


def test_cancelling_a_stream_reaches_the_worker(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script.insert(1, worker.hold)
        call = router.stream()
        await call.read()
        call.cancel()
        await until(lambda: worker.cancelled == 1)
        assert not worker.running

    play(scenario)


def test_cancelling_a_unary_call_reaches_the_worker(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script.insert(0, worker.hold)
        call = router.generate()
        await until(lambda: worker.running == 1)
        call.cancel()
        await until(lambda: worker.cancelled == 1)

    play(scenario)


def test_cancelling_reaches_the_worker_when_the_caller_has_stopped_reading(
    play: Play, until: Until
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        # More than flow control lets pass unread.
        worker.script = [worker.tokens(*[5] * 10_000)] * 100
        worker.script.append(worker.hold)
        call = router.stream()
        await call.read()
        call.cancel()
        await until(lambda: worker.cancelled == 1)

    play(scenario)


def test_a_cancelled_request_is_counted_and_nothing_is_left_running(
    play: Play, until: Until
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script.insert(1, worker.hold)
        call = router.stream()
        await call.read()
        assert router.metric("num_requests_running", model="tiny") == 1
        call.cancel()
        await until(lambda: router.metric("requests_total", model="tiny", code="CANCELLED") == 1)
        assert router.metric("num_requests_running", model="tiny") == 0

    play(scenario)


def test_the_deadline_reaches_the_worker(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await router.generate(timeout=7.5)
        (seconds_left,) = worker.seconds_left
        assert seconds_left is not None
        # gRPC rounds up.
        assert 5 < seconds_left < 8

    play(scenario)


def test_without_a_deadline_the_worker_has_none(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await router.generate(timeout=None)
        assert worker.seconds_left == [None]

    play(scenario)


def test_a_deadline_that_passes_ends_the_run(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script.insert(1, worker.hold)
        error = await router.error(router.stream(timeout=5.0))
        assert error.code() is StatusCode.DEADLINE_EXCEEDED
        await until(lambda: worker.cancelled == 1)
        await until(lambda: router.metric("num_requests_running", model="tiny") == 0)

    play(scenario)


def test_fifty_streams_with_cancellations_leave_nothing_behind(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        async def read(events: int) -> None:
            call = router.stream()
            with contextlib.suppress(asyncio.CancelledError):
                async for _ in call:
                    events -= 1
                    if events == 0:
                        call.cancel()

        worker.script = [*[worker.tokens(5)] * 20, worker.completion()]
        await asyncio.gather(*(read(index % 25) for index in range(50)))
        await until(lambda: worker.running == 0)
        await until(
            lambda: (
                router.metric("num_requests_waiting", model="tiny")
                + router.metric("num_requests_running", model="tiny")
                == 0
            )
        )
        assert len(worker.requests) == 50

    play(scenario)

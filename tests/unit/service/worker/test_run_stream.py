"""The worker's side of a stream of runs: flow control of each run, errors, cancellation, drain."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

import pytest
from google.rpc import status_pb2

from harness.router import wait_until
from harness.waiting import TIMEOUT
from shaperouter.v1 import worker_pb2
from shaperouter_service.errors import Code, QueueFullError
from shaperouter_service.system.drain import Drain
from shaperouter_service.worker.run_stream import MAX_UNUSED_EVENTS, RunStreams, Send, Serve

Play = Callable[[Serve, Callable[["Peer"], Awaitable[None]]], None]


class Peer:
    """A router at the other end, whose requests are put into a queue."""

    def __init__(self, streams: RunStreams, drain: Drain) -> None:
        self.streams = streams
        self.drain = drain
        self.updates: dict[int, list[worker_pb2.RunUpdate]] = {}
        self.has_ended = False
        self._requests: asyncio.Queue[worker_pb2.RunsRequest] = asyncio.Queue()

    def send(self, **fields: object) -> None:
        self._requests.put_nowait(worker_pb2.RunsRequest(**fields))  # type: ignore[arg-type]

    def start(self, *run_ids: int) -> None:
        self.send(started=[worker_pb2.RunStart(run_id=run_id) for run_id in run_ids])

    def use(self, run_id: int, events: int) -> None:
        self.send(events_used=[worker_pb2.EventsUsed(run_id=run_id, events=events)])

    def tokens(self, run_id: int) -> list[list[int]]:
        """The tokens of a run's events so far."""
        return [list(each.event.tokens.token_ids) for each in self.updates.get(run_id, [])]

    def status(self, run_id: int) -> status_pb2.Status:
        """The error that a run ended with."""
        return status_pb2.Status.FromString(self.updates[run_id][-1].error_status)

    async def read(self) -> None:
        responses: AsyncGenerator[worker_pb2.RunsResponse, None]
        async with contextlib.aclosing(self.streams.responses(self._sent())) as responses:
            async for response in responses:
                for update in response.updates:
                    self.updates.setdefault(update.run_id, []).append(update)
        self.has_ended = True

    async def _sent(self) -> AsyncIterator[worker_pb2.RunsRequest]:
        while True:
            yield await self._requests.get()


@pytest.fixture
def play() -> Play:
    """Plays a scenario of a router and a worker that serves runs by a function."""

    async def act(serve: Serve, scenario: Callable[[Peer], Awaitable[None]]) -> None:
        drain = Drain()
        peer = Peer(RunStreams(serve, drain), drain)
        reading = asyncio.create_task(peer.read())
        async with asyncio.timeout(TIMEOUT):
            await scenario(peer)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    return lambda serve, scenario: asyncio.run(act(serve, scenario))


def tokens(*token_ids: int) -> worker_pb2.RunResponse:
    return worker_pb2.RunResponse(tokens=worker_pb2.RunTokens(token_ids=token_ids))


async def counting(_: worker_pb2.RunStart, send: Send) -> None:
    """Sends 100 tokens, one at a time."""
    for token in range(100):
        send(tokens(token))


async def holding(_: worker_pb2.RunStart, send: Send) -> None:
    await asyncio.Event().wait()


def test_tokens_that_a_slow_reader_does_not_use_are_put_together(play: Play) -> None:
    async def scenario(peer: Peer) -> None:
        peer.start(1)
        await wait_until(lambda: len(peer.tokens(1)) == MAX_UNUSED_EVENTS)
        peer.use(1, 1)
        await wait_until(lambda: len(peer.tokens(1)) == MAX_UNUSED_EVENTS + 1)
        assert peer.tokens(1)[:MAX_UNUSED_EVENTS] == [[n] for n in range(MAX_UNUSED_EVENTS)]
        assert peer.tokens(1)[-1] == list(range(MAX_UNUSED_EVENTS, 100))

    play(counting, scenario)


def test_a_slow_reader_of_one_run_does_not_hold_up_another(play: Play) -> None:
    async def scenario(peer: Peer) -> None:
        peer.start(1)
        await wait_until(lambda: len(peer.tokens(1)) == MAX_UNUSED_EVENTS)
        peer.start(2)
        await wait_until(lambda: len(peer.tokens(2)) == MAX_UNUSED_EVENTS)

    play(counting, scenario)


def test_a_run_counts_as_running_until_its_events_are_sent(play: Play) -> None:
    async def scenario(peer: Peer) -> None:
        peer.start(1)
        await wait_until(lambda: len(peer.tokens(1)) == MAX_UNUSED_EVENTS)
        done = asyncio.create_task(peer.drain.done())
        await asyncio.sleep(0)
        assert not done.done()
        peer.use(1, MAX_UNUSED_EVENTS)
        await done

    play(counting, scenario)


def test_an_error_follows_the_tokens_before_it_and_has_its_details(play: Play) -> None:
    async def fail(start: worker_pb2.RunStart, send: Send) -> None:
        await counting(start, send)
        raise QueueFullError("tiny", 4)

    async def scenario(peer: Peer) -> None:
        peer.start(1)
        await wait_until(lambda: len(peer.tokens(1)) == MAX_UNUSED_EVENTS)
        peer.use(1, MAX_UNUSED_EVENTS)
        await wait_until(lambda: len(peer.updates[1]) == MAX_UNUSED_EVENTS + 2)
        assert peer.status(1).code == Code.RESOURCE_EXHAUSTED
        assert any("RetryInfo" in detail.type_url for detail in peer.status(1).details)

    play(fail, scenario)


@pytest.mark.parametrize(
    ("error", "lacking"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "file descriptors"),
        (MemoryError(), "memory"),
        (ImportError("a.so: failed to map segment from shared object"), "memory"),
        (RuntimeError("can't start new thread"), "memory"),
    ],
)
def test_a_run_that_meets_an_exhausted_worker_may_go_to_another(
    play: Play, error: Exception, lacking: str
) -> None:
    async def serve(start: worker_pb2.RunStart, send: Send) -> None:
        raise error

    async def scenario(peer: Peer) -> None:
        peer.start(1)
        await wait_until(lambda: bool(peer.updates.get(1)))
        # Routers try another worker after this status only.
        assert peer.status(1).code == QueueFullError.code
        assert f"no {lacking} left" in peer.status(1).message
        assert any("RetryInfo" in detail.type_url for detail in peer.status(1).details)

    play(serve, scenario)


def test_a_defect_in_one_run_ends_no_other(play: Play) -> None:
    released = asyncio.Event()

    async def serve(start: worker_pb2.RunStart, send: Send) -> None:
        if start.run_id == 1:
            raise ValueError("a defect")
        await released.wait()
        send(tokens(5))

    async def scenario(peer: Peer) -> None:
        peer.start(1, 2)
        await wait_until(lambda: 1 in peer.updates)
        assert peer.status(1).code == Code.INTERNAL
        assert "a defect" not in peer.status(1).message
        released.set()
        await wait_until(lambda: peer.tokens(2) == [[5]])

    play(serve, scenario)


def test_a_run_that_is_cancelled_in_the_message_that_starts_it_leaves_nothing(play: Play) -> None:
    async def scenario(peer: Peer) -> None:
        peer.send(started=[worker_pb2.RunStart(run_id=1)], cancelled_run_ids=[1])
        peer.start(2)
        peer.send(cancelled_run_ids=[2])
        peer.streams.end_when_idle()
        await wait_until(lambda: peer.has_ended)
        assert not peer.updates

    play(holding, scenario)


def test_a_stream_of_a_draining_worker_ends_with_its_last_run(play: Play) -> None:
    released = asyncio.Event()

    async def serve(_: worker_pb2.RunStart, send: Send) -> None:
        send(tokens(5))
        await released.wait()

    async def scenario(peer: Peer) -> None:
        peer.start(1)
        await wait_until(lambda: 1 in peer.updates)
        peer.drain.begin()
        peer.start(2)
        await wait_until(lambda: 2 in peer.updates)
        peer.streams.end_when_idle()
        assert peer.status(2).code == Code.UNAVAILABLE
        assert not peer.has_ended
        released.set()
        await wait_until(lambda: peer.has_ended)
        assert peer.tokens(1) == [[5]]

    play(serve, scenario)


def test_runs_of_a_router_that_has_gone_are_cancelled(play: Play) -> None:
    ended: list[int] = []

    async def serve(start: worker_pb2.RunStart, send: Send) -> None:
        send(tokens(5))
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(start.run_id)

    async def scenario(peer: Peer) -> None:
        peer.start(1, 2)
        await wait_until(lambda: len(peer.updates) == 2)

    play(serve, scenario)
    assert ended == [1, 2]

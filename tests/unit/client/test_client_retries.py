"""Which failed calls are retried, when, and how often."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo

from harness.raw_http2 import stopping_server
from harness.waiting import TIMEOUT
from shaperouter import (
    AsyncClient,
    CallCancelledError,
    Client,
    InternalError,
    InvalidArgumentError,
    OverloadedError,
    UnavailableError,
)
from shaperouter._async_connection import AsyncCalls, AsyncConnection
from shaperouter._connection import Calls
from shaperouter._retries import RetryPolicy

if TYPE_CHECKING:
    from conftest import FakeShaperouter

Generate = Callable[..., object]
Step = Callable[[grpc.ServicerContext], None]
UNAVAILABLE, EXHAUSTED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED


def generate(address: str, **settings: Any) -> object:
    with Client(address, **settings) as client:
        return client.generate("x")


def async_generate(address: str, **settings: Any) -> object:
    async def call() -> object:
        async with AsyncClient(address, **settings) as client:
            return await client.generate("x")

    return asyncio.run(call())


both = pytest.mark.parametrize("call", [generate, async_generate])


def retry_info(seconds: float) -> RetryInfo:
    delay = Duration()
    delay.FromNanoseconds(int(seconds * 1e9))
    return RetryInfo(retry_delay=delay)


def failing(
    fake: FakeShaperouter, times: int, step: Callable[[grpc.ServicerContext], None]
) -> None:
    """Makes the first calls fail with a step."""

    def before_answer(context: grpc.ServicerContext) -> None:
        if len(fake.requests) <= times:
            step(context)

    fake.before_answer = before_answer


@pytest.mark.usefixtures("fast_retries")
@both
def test_unavailable_service_is_retried(fake: FakeShaperouter, call: Generate) -> None:
    failing(fake, 3, fake.fail(UNAVAILABLE, "worker-0 was lost"))
    call(fake.address, timeout=TIMEOUT)
    assert len(fake.requests) == 4


@pytest.mark.usefixtures("fast_retries")
@both
@pytest.mark.parametrize(
    ("settings", "attempts"), [({}, 4), ({"retries": 0}, 1), ({"retries": 5}, 6)]
)
def test_retries_limit_the_attempts(
    fake: FakeShaperouter, call: Generate, settings: dict[str, int], attempts: int
) -> None:
    fake.before_answer = fake.fail(UNAVAILABLE, "shutting down")
    with pytest.raises(UnavailableError, match="shutting down"):
        call(fake.address, timeout=TIMEOUT, **settings)
    assert len(fake.requests) == attempts


@pytest.mark.usefixtures("fast_retries")
@both
def test_overload_is_not_retried_by_default(fake: FakeShaperouter, call: Generate) -> None:
    fake.before_answer = fake.fail(EXHAUSTED, "queue is full", retry_info(0.01))
    with pytest.raises(OverloadedError, match="queue is full"):
        call(fake.address, timeout=TIMEOUT)
    assert len(fake.requests) == 1


@pytest.mark.usefixtures("fast_retries")
@both
def test_overload_is_retried_if_retries_are_given(fake: FakeShaperouter, call: Generate) -> None:
    failing(fake, 2, fake.fail(EXHAUSTED, "queue is full"))
    call(fake.address, timeout=TIMEOUT, retries=2)
    assert len(fake.requests) == 3


@pytest.mark.usefixtures("fast_retries")
@both
@pytest.mark.parametrize("code", [UNAVAILABLE, EXHAUSTED])
def test_retry_waits_as_long_as_the_service_asks(
    fake: FakeShaperouter, call: Generate, code: grpc.StatusCode
) -> None:
    failing(fake, 1, fake.fail(code, "later", retry_info(0.3)))
    started = time.monotonic()
    call(fake.address, timeout=TIMEOUT, retries=1)
    assert time.monotonic() - started >= 0.3
    assert len(fake.requests) == 2


@both
def test_no_retry_whose_pause_exceeds_the_deadline(fake: FakeShaperouter, call: Generate) -> None:
    fake.before_answer = fake.fail(EXHAUSTED, "queue is full", retry_info(60))
    with pytest.raises(OverloadedError) as caught:
        call(fake.address, timeout=30, retries=3)
    assert caught.value.retry_after == 60
    assert len(fake.requests) == 1


@both
def test_attempts_share_the_deadline(fake: FakeShaperouter, call: Generate) -> None:
    left: list[float] = []
    refuse = fake.fail(UNAVAILABLE, "later", retry_info(0.3))

    def before_answer(context: grpc.ServicerContext) -> None:
        left.append(context.time_remaining())
        if len(left) == 1:
            refuse(context)

    fake.before_answer = before_answer
    call(fake.address, timeout=10, retries=1)
    first, second = left
    assert second < first - 0.2


@pytest.mark.usefixtures("fast_retries")
@both
def test_call_that_may_have_killed_a_worker_is_not_retried(
    fake: FakeShaperouter, call: Generate
) -> None:
    def step(context: grpc.ServicerContext) -> None:
        context.set_trailing_metadata((("grpc-retry-pushback-ms", "-1"),))
        context.abort(UNAVAILABLE, "worker-0 was lost")

    fake.before_answer = step
    with pytest.raises(UnavailableError, match="worker-0 was lost"):
        call(fake.address, timeout=TIMEOUT, retries=3)
    assert len(fake.requests) == 1


@pytest.mark.usefixtures("fast_retries")
@both
def test_permanent_errors_are_raised_at_once(fake: FakeShaperouter, call: Generate) -> None:
    fake.before_answer = fake.fail(grpc.StatusCode.INTERNAL, "broken")
    with pytest.raises(InternalError):
        call(fake.address, timeout=TIMEOUT, retries=3)
    assert len(fake.requests) == 1


def change(address: str, method: str, *arguments: str) -> None:
    with Client(address, retries=3) as client:
        getattr(client, method)(*arguments)


def async_change(address: str, method: str, *arguments: str) -> None:
    async def call() -> None:
        async with AsyncClient(address, retries=3) as client:
            await getattr(client, method)(*arguments)

    asyncio.run(call())


@pytest.mark.usefixtures("fast_retries")
@pytest.mark.parametrize("call", [change, async_change])
@pytest.mark.parametrize(
    "arguments",
    [("load_model", "gpt2"), ("unload_model", "gpt2"), ("set_alias", "chat", "gpt2")],
    ids=lambda arguments: arguments[0],
)
def test_a_change_of_the_models_is_never_repeated(
    fake: FakeShaperouter, call: Callable[..., None], arguments: tuple[str, ...]
) -> None:
    fake.before_models = fake.fail(UNAVAILABLE, "the connection was lost")
    with pytest.raises(UnavailableError, match="the connection was lost"):
        call(fake.address, *arguments)
    assert len(fake.requests) == 1


def stream(address: str, **settings: Any) -> list[str]:
    with Client(address, **settings) as client:
        return [delta.text for delta in client.stream("x")]


def async_stream(address: str, **settings: Any) -> list[str]:
    async def call() -> list[str]:
        async with AsyncClient(address, **settings) as client:
            return [delta.text async for delta in client.stream("x")]

    return asyncio.run(call())


both_streams = pytest.mark.parametrize("call", [stream, async_stream])
Stream = Callable[..., list[str]]


@pytest.mark.usefixtures("fast_retries")
@both_streams
def test_a_stream_is_retried_while_nothing_of_its_answer_has_arrived(
    fake: FakeShaperouter, call: Stream
) -> None:
    refuse = fake.fail(UNAVAILABLE, "shutting down")
    fake.script.insert(0, lambda context: refuse(context) if len(fake.requests) < 3 else None)
    assert call(fake.address, timeout=TIMEOUT) == [" a", " library"]
    assert len(fake.requests) == 3


@pytest.mark.usefixtures("fast_retries")
@both_streams
def test_a_stream_is_not_retried_after_a_part_of_its_answer(
    fake: FakeShaperouter, call: Stream
) -> None:
    fake.script.insert(1, fake.fail(UNAVAILABLE, "shutting down"))
    with pytest.raises(UnavailableError, match="shutting down"):
        call(fake.address, timeout=TIMEOUT)
    assert len(fake.requests) == 1


@pytest.mark.usefixtures("fast_retries")
@both_streams
def test_retries_limit_the_attempts_of_a_stream(fake: FakeShaperouter, call: Stream) -> None:
    fake.script.insert(0, fake.fail(UNAVAILABLE, "shutting down"))
    with pytest.raises(UnavailableError, match="shutting down"):
        call(fake.address, timeout=TIMEOUT, retries=2)
    assert len(fake.requests) == 3


@pytest.mark.parametrize("end", ["cancel the stream", "close the client"])
def test_the_pause_of_a_stream_ends_with_it(
    fake: FakeShaperouter, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    fake.script.insert(0, fake.fail(UNAVAILABLE, "later", retry_info(60)))
    pausing = threading.Event()
    pause = Calls.pause

    def seen(calls: Calls, seconds: float) -> None:
        pausing.set()
        pause(calls, seconds)

    monkeypatch.setattr(Calls, "pause", seen)
    with Client(fake.address, retries=1) as client:
        stream = client.stream("x")
        failed = threading.Event()

        def read() -> None:
            with pytest.raises(CallCancelledError):
                next(stream)
            failed.set()

        threading.Thread(target=read, daemon=True).start()
        assert pausing.wait(TIMEOUT)
        (stream.cancel if end == "cancel the stream" else client.close)()
        assert failed.wait(TIMEOUT)
    assert len(fake.requests) == 1


@pytest.mark.parametrize("end", ["cancel the stream", "close the client", "cancel the reader"])
def test_the_pause_of_an_asyncio_stream_ends_with_it(
    fake: FakeShaperouter, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    fake.script.insert(0, fake.fail(UNAVAILABLE, "later", retry_info(60)))
    pausing = asyncio.Event()
    pause = AsyncCalls.pause

    async def seen(calls: AsyncCalls, seconds: float) -> None:
        pausing.set()
        await pause(calls, seconds)

    monkeypatch.setattr(AsyncCalls, "pause", seen)

    async def end_in_pause() -> None:
        async with AsyncClient(fake.address, retries=1) as client:
            stream = client.stream("x")
            reader = asyncio.ensure_future(anext(stream))
            await asyncio.wait_for(pausing.wait(), TIMEOUT)
            if end == "cancel the stream":
                stream.cancel()
            elif end == "close the client":
                await client.close()
            else:
                reader.cancel()
            expected = asyncio.CancelledError if end == "cancel the reader" else CallCancelledError
            with pytest.raises(expected):
                await asyncio.wait_for(reader, TIMEOUT)
            with pytest.raises(UnavailableError):  # how its only attempt ended
                await asyncio.wait_for(anext(stream), TIMEOUT)

    asyncio.run(end_in_pause())
    assert len(fake.requests) == 1


GOAWAY = "GOAWAY received; Error code: 0; Debug Text: max_age"
NOT_BEGUN = [
    f"Stream removed ({GOAWAY})",
    f"Stream removed (Transport closed (Socket closed ({GOAWAY})))",
]


@pytest.mark.parametrize("call", [generate, async_generate, stream, async_stream])
@pytest.mark.parametrize("failures", [1, 2])
@pytest.mark.parametrize("text", NOT_BEGUN, ids=["not seen", "not sent"])
def test_a_call_that_the_service_has_not_begun_is_made_once_more_even_without_retries(
    fake: FakeShaperouter, call: Generate, failures: int, text: str
) -> None:
    # gRPC for asyncio repeats it by itself, but not for these texts from a server.
    failing(fake, failures, fake.fail(UNAVAILABLE, text))
    fake.script.insert(0, fake.before_answer)
    if failures == 1:
        call(fake.address, timeout=TIMEOUT, retries=0)
    else:
        with pytest.raises(UnavailableError, match="max_age"):
            call(fake.address, timeout=TIMEOUT, retries=0)
    assert len(fake.requests) == 2


@pytest.mark.usefixtures("fast_retries")
def test_a_stream_ends_if_its_service_stops_before_it_begins_it() -> None:
    # With gRPC's own retries, its blocking API would wait for the end forever.
    failures: list[UnavailableError] = []

    def call(address: str) -> None:
        try:
            stream(address, timeout=TIMEOUT)
        except UnavailableError as error:
            failures.append(error)

    with stopping_server() as address:
        thread = threading.Thread(target=call, args=(address,), daemon=True)
        thread.start()
        thread.join(TIMEOUT)
    assert len(failures) == 1


def test_closing_the_client_ends_a_pause(fake: FakeShaperouter) -> None:
    fake.before_answer = fake.fail(EXHAUSTED, "queue is full", retry_info(60))
    client = Client(fake.address, retries=1)
    failures: list[BaseException] = []

    def call() -> None:
        try:
            client.generate("x")
        except CallCancelledError as error:
            failures.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert fake.entered.wait(TIMEOUT)
    client.close()
    thread.join(TIMEOUT)
    assert len(failures) == 1


def test_closing_the_asyncio_client_ends_a_pause(
    fake: FakeShaperouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.before_answer = fake.fail(EXHAUSTED, "queue is full", retry_info(60))
    pausing = asyncio.Event()
    pause = AsyncConnection.pause

    async def seen(connection: AsyncConnection[Any], seconds: float) -> None:
        pausing.set()
        await pause(connection, seconds)

    monkeypatch.setattr(AsyncConnection, "pause", seen)

    async def close_in_pause() -> None:
        async with AsyncClient(fake.address, retries=1) as client:
            call = asyncio.create_task(client.generate("x"))
            await asyncio.wait_for(pausing.wait(), TIMEOUT)
            await client.close()
            with pytest.raises(CallCancelledError):
                await asyncio.wait_for(call, TIMEOUT)

    asyncio.run(close_in_pause())


@pytest.mark.parametrize("retries", [-1, 1.5, "3", True, 2**31])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_invalid_number_of_retries_is_refused(
    kind: type[Client | AsyncClient], retries: Any
) -> None:
    with pytest.raises(InvalidArgumentError, match=r"retries: must (be|fit)"):
        kind("host:1", retries=retries)


def test_pauses_grow_to_a_limit_and_differ() -> None:
    def pauses() -> list[float]:
        attempts = RetryPolicy.resolve(1000).begin(None)
        error = UnavailableError("gone")
        made = [attempts.pause_after(error) for _ in range(1000)]
        return [pause for pause in made if pause is not None]

    made = pauses()
    assert len(made) == 1000
    assert 0.2 <= made[0] <= 0.24
    assert 0.6 <= made[1] <= 0.72
    assert 1.8 <= made[2] <= 2.16
    assert all(5 <= pause <= 6 for pause in made[3:])
    assert pauses() != made

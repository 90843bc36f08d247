"""The asyncio client behaves like the blocking one."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import pytest

from harness.waiting import TIMEOUT
from shaperouter import (
    AsyncClient,
    AsyncGenerationStream,
    AsyncGraphStream,
    CallCancelledError,
    Client,
    GenerationStream,
    GraphStream,
    InternalError,
    InvalidArgumentError,
    ModelNotFoundError,
    UnavailableError,
)

if TYPE_CHECKING:
    from conftest import FakeShaperouter


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Runs a scenario with a time limit."""
    asyncio.run(asyncio.wait_for(scenario, TIMEOUT))


async def happened(event: Any) -> bool:
    return await asyncio.to_thread(event.wait, TIMEOUT)


def test_results_equal_those_of_the_blocking_client(fake: FakeShaperouter, client: Client) -> None:
    async def scenario() -> None:
        async with AsyncClient(fake.address) as aclient:
            assert await aclient.generate("x") == client.generate("x")
            assert await aclient.models() == client.models()
            assert await aclient.model("demo") == client.model("demo")
            assert await aclient.graphs() == client.graphs()
            async with aclient.stream("x") as stream:
                deltas = [delta async for delta in stream]
            async with aclient.watch_graphs() as watched:
                assert [graphs async for graphs in watched] == list(client.watch_graphs())
            async with aclient.warm_graphs(["demo decode 4x256"]) as warmed:
                told = [graphs async for graphs in warmed]
            assert told == list(client.warm_graphs(["demo decode 4x256"]))
            blocking = client.stream("x")
            assert deltas == list(blocking)
            assert stream.result == blocking.result

    run(scenario())


def test_requests_equal_those_of_the_blocking_client(fake: FakeShaperouter, client: Client) -> None:
    arguments: dict[str, Any] = {
        "prompt": [1, 2],
        "model": "demo",
        "explain": True,
        "max_new_tokens": 3,
        "do_sample": True,
        "temperature": 0.5,
        "seed": 4,
        "eos_token_ids": [5],
    }
    warming: dict[str, Any] = {
        "signatures": ["demo decode 4x256"],
        "workers": ["worker-1"],
        "all_workers": True,
    }

    async def scenario() -> None:
        async with AsyncClient(fake.address) as aclient:
            await aclient.generate(**arguments)
            _ = [delta async for delta in aclient.stream(**arguments)]
            await aclient.model("demo")
            await aclient.graphs("demo", include_cold=True)
            _ = [graphs async for graphs in aclient.watch_graphs("demo", include_cold=True)]
            _ = [graphs async for graphs in aclient.warm_graphs(**warming)]

    run(scenario())
    client.generate(**arguments)
    list(client.stream(**arguments))
    client.model("demo")
    client.graphs("demo", include_cold=True)
    list(client.watch_graphs("demo", include_cold=True))
    list(client.warm_graphs(**warming))
    assert len(fake.requests) == 12
    assert fake.requests[:6] == fake.requests[6:]


@pytest.mark.parametrize(
    ("kind", "akind"),
    [
        (Client, AsyncClient),
        (GenerationStream, AsyncGenerationStream),
        (GraphStream, AsyncGraphStream),
    ],
)
def test_public_methods_have_the_same_parameters(kind: type, akind: type) -> None:
    def methods(cls: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in inspect.getmembers(cls, inspect.isfunction)
            if not name.startswith("_") or name == "__init__"
        }

    assert methods(kind) == methods(akind)


def test_on_stall_is_called_before_the_tokens(fake: FakeShaperouter) -> None:
    async def scenario() -> None:
        order: list[str] = []
        note = order.append
        async with AsyncClient(fake.address) as client:
            async for delta in client.stream("x", on_stall=lambda s: note(str(s))):
                note(delta.text)
        assert order == ["demo prefill 1x16", " a", " library"]

    run(scenario())


def test_calls_run_concurrently(fake: FakeShaperouter) -> None:
    async def scenario() -> None:
        async with AsyncClient(fake.address) as client:
            generations = await asyncio.gather(*(client.generate("x") for _ in range(20)))
        assert {generation.text for generation in generations} == {" a library"}

    run(scenario())


def test_leaving_the_block_early_cancels_the_call(fake: FakeShaperouter) -> None:
    fake.script.insert(2, fake.hold)

    async def scenario() -> None:
        async with AsyncClient(fake.address) as client:
            async with client.stream("x") as stream:
                await anext(stream)
                with pytest.raises(RuntimeError, match="read to its end"):
                    _ = stream.result
            assert await happened(fake.cancelled)

    run(scenario())


@pytest.mark.parametrize("read", [False, True])
def test_dropping_the_stream_cancels_the_call(fake: FakeShaperouter, read: bool) -> None:
    fake.script.insert(2, fake.hold)

    async def scenario() -> None:
        async with AsyncClient(fake.address) as client:
            stream = client.stream("x")
            if read:
                await anext(stream)
            else:
                assert await happened(fake.entered)
            del stream
            assert await happened(fake.cancelled)

    run(scenario())


@pytest.mark.parametrize("method", ["generate", "stream"])
def test_cancelling_the_task_cancels_the_call(fake: FakeShaperouter, method: str) -> None:
    fake.before_answer = fake.hold
    fake.script.insert(2, fake.hold)

    async def scenario() -> None:
        async with AsyncClient(fake.address) as client:

            async def consume() -> None:
                if method == "generate":
                    await client.generate("x")
                else:
                    _ = [delta async for delta in client.stream("x")]

            task = asyncio.create_task(consume())
            assert await happened(fake.entered)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await happened(fake.cancelled)

    run(scenario())


def test_leaving_a_watch_early_cancels_it(fake: FakeShaperouter) -> None:
    fake.graph_updates.insert(1, fake.hold)

    async def scenario() -> None:
        async with AsyncClient(fake.address) as client:
            async with client.watch_graphs() as stream:
                await anext(stream)
            assert await happened(fake.cancelled)
            with pytest.raises(CallCancelledError):
                await anext(stream)

    run(scenario())


def test_cancelled_stream_raises_in_its_reader(fake: FakeShaperouter) -> None:
    fake.script.insert(2, fake.hold)

    async def scenario() -> None:
        async with AsyncClient(fake.address) as client:
            stream = client.stream("x")
            await anext(stream)
            stream.cancel()
            with pytest.raises(CallCancelledError):
                await anext(stream)
            assert await happened(fake.cancelled)

    run(scenario())


def test_closing_the_client_ends_calls_with_an_error(fake: FakeShaperouter) -> None:
    fake.before_answer = fake.hold

    async def scenario() -> None:
        client = AsyncClient(fake.address)
        task = asyncio.create_task(client.generate("x"))
        assert await happened(fake.entered)
        await client.close()
        with pytest.raises(CallCancelledError):
            await task

    run(scenario())


def test_errors_are_those_of_the_blocking_client(fake: FakeShaperouter) -> None:
    async def scenario() -> None:
        async with AsyncClient(fake.address) as client:
            with pytest.raises(ModelNotFoundError, match="no model 'gpt9'"):
                await client.model("gpt9")
            with pytest.raises(InvalidArgumentError, match=r"options\.seed"):
                await client.generate("x", seed=2**63)
            with pytest.raises(InvalidArgumentError, match="timeout"):
                client.stream("x", timeout=math.nan)
            del fake.script[-1]
            with pytest.raises(InternalError, match="without its completion"):
                _ = [delta async for delta in client.stream("x")]

    run(scenario())


@pytest.mark.usefixtures("fast_retries")
def test_absent_service_is_reported(unused_address: str) -> None:
    async def scenario() -> None:
        async with AsyncClient(unused_address) as client:
            with pytest.raises(UnavailableError, match="no Shaperouter at"):
                await client.generate("x")

    run(scenario())


def test_client_can_be_created_outside_the_loop(fake: FakeShaperouter) -> None:
    client = AsyncClient(fake.address)

    async def scenario() -> None:
        async with client:
            assert (await client.generate("x")).text == " a library"

    run(scenario())


def test_client_refuses_calls_in_another_event_loop(fake: FakeShaperouter) -> None:
    client = AsyncClient(fake.address)

    async def first() -> None:
        assert (await client.generate("x")).text == " a library"

    async def second() -> None:
        with pytest.raises(RuntimeError, match="make a client in each event loop"):
            await client.generate("x")
        with pytest.raises(RuntimeError, match="make a client in each event loop"):
            client.stream("x")
        await client.close()

    run(first())
    run(second())

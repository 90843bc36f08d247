"""Reading several streams as one."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

import pytest

from harness.waiting import TIMEOUT
from shaperouter_service.serving.merging import merged


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Runs a scenario, which may not hang."""
    asyncio.run(asyncio.wait_for(scenario, TIMEOUT))


class Source:
    """A stream that gives values, and then ends, fails or waits; knows whether it was closed."""

    def __init__(self, *values: int, error: BaseException | None = None, waits: bool = False):
        self.values = values
        self.error = error
        self.waits = waits
        self.given = 0
        self.closed = False

    async def stream(self) -> AsyncGenerator[int, None]:
        try:
            for value in self.values:
                self.given += 1
                yield value
            if self.waits:
                await asyncio.Event().wait()
            if self.error:
                raise self.error
        finally:
            self.closed = True


def test_values_come_with_their_place_and_in_the_order_of_each_stream() -> None:
    async def scenario() -> None:
        sources = [Source(1, 2, 3), Source(), Source(4, 5)]
        found = defaultdict(list)
        async for place, value in merged([source.stream() for source in sources]):
            found[place].append(value)
        assert found == {0: [1, 2, 3], 2: [4, 5]}
        assert all(source.closed for source in sources)

    run(scenario())


def test_a_stream_that_waits_does_not_hold_up_others() -> None:
    async def scenario() -> None:
        waiting, other = Source(1, waits=True), Source(2, 3)
        async with contextlib.aclosing(merged([waiting.stream(), other.stream()])) as values:
            assert {await anext(values) for _ in range(3)} == {(0, 1), (1, 2), (1, 3)}
        assert waiting.closed

    run(scenario())


@pytest.mark.parametrize("error", [LookupError("gone"), asyncio.CancelledError()], ids=repr)
def test_a_failure_closes_all_streams_and_is_raised(error: BaseException) -> None:
    async def scenario() -> None:
        waiting, failing = Source(1, waits=True), Source(error=error)
        with pytest.raises(type(error)):
            async for _ in merged([waiting.stream(), failing.stream()]):
                pass
        assert waiting.closed

    run(scenario())


def test_one_stream_is_read_like_several() -> None:
    async def scenario() -> None:
        source = Source(1, 2, error=LookupError("gone"))
        values = merged([source.stream()])
        assert [await anext(values), await anext(values)] == [(0, 1), (0, 2)]
        with pytest.raises(LookupError):
            await anext(values)

    run(scenario())


@pytest.mark.parametrize("count", [1, 2])
def test_a_reader_that_leaves_closes_all_streams(count: int) -> None:
    async def scenario() -> None:
        sources = [Source(1, waits=True), Source(2, 3, 4)][:count]
        async with contextlib.aclosing(merged([source.stream() for source in sources])) as values:
            await anext(values)
        assert all(source.closed for source in sources)

    run(scenario())


def test_no_stream_gets_far_ahead_of_the_reader() -> None:
    async def scenario() -> None:
        sources = [Source(*range(100)), Source(*range(100))]
        async with contextlib.aclosing(merged([source.stream() for source in sources])) as values:
            await anext(values)
            for _ in range(100):
                await asyncio.sleep(0)  # everything that can run, runs
            assert max(source.given for source in sources) <= 2

    run(scenario())

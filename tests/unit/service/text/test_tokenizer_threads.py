"""The texts of many clients are tokenized in turns; short ones do not wait for long ones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from harness.waiting import TIMEOUT
from shaperouter_service.text import ClientTokenizer, Tokenizer, TokenizerThreads
from shaperouter_service.text.tokenizer_threads import INLINE_CHARACTERS, SHORT_CHARACTERS


class HeldTokenizer:
    """Blocks on texts that begin with `hold` until released; the token of a text is its length."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.holding, self.let_go = threading.Event(), threading.Event()

    def encode(self, text: str) -> list[int]:
        self.threads.append(threading.get_ident())
        if text.startswith("hold"):
            self.holding.set()
            assert self.let_go.wait(TIMEOUT)
        return [len(text)]

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        return [self.encode(word) for word in words]

    def encode_texts(
        self, texts: Sequence[str], pairs: Sequence[str] | None, max_tokens: int | None
    ) -> list[list[int]]:
        return self.encode_words(texts)

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(token_ids)


class Room:
    """A tokenizer and its threads, as in a router."""

    def __init__(self) -> None:
        self.tokenizer = HeldTokenizer()
        self._threads = TokenizerThreads()

    def of(self, client: str) -> ClientTokenizer:
        return ClientTokenizer(cast("Tokenizer", self.tokenizer), self._threads, client)

    async def hold(self, client: str, length: int) -> asyncio.Task[Any]:
        """Starts to tokenize a text that blocks."""
        task = asyncio.create_task(self.of(client).encode("hold".ljust(length)))
        assert await asyncio.to_thread(self.tokenizer.holding.wait, TIMEOUT)
        return task


def run(scenario: Callable[[Room], Awaitable[None]]) -> None:
    async def act() -> None:
        room = Room()
        try:
            async with asyncio.timeout(TIMEOUT):
                await scenario(room)
        finally:
            room.tokenizer.let_go.set()

    asyncio.run(act())


def test_the_shortest_texts_are_tokenized_by_the_event_loop() -> None:
    async def scenario(room: Room) -> None:
        assert await room.of("a").encode("x" * INLINE_CHARACTERS) == [INLINE_CHARACTERS]
        assert await room.of("a").encode_plain("x") == [1]
        assert set(room.tokenizer.threads) == {threading.get_ident()}
        await room.of("a").encode("x" * (INLINE_CHARACTERS + 1))
        assert room.tokenizer.threads[-1] != threading.get_ident()

    run(scenario)


def test_many_short_words_are_not_tokenized_by_the_event_loop() -> None:
    async def scenario(room: Room) -> None:
        assert await room.of("a").encode_words(["x"] * 100) == [[1]] * 100
        assert threading.get_ident() not in room.tokenizer.threads

    run(scenario)


def test_many_empty_texts_are_not_tokenized_by_the_event_loop() -> None:
    async def scenario(room: Room) -> None:
        texts = [""] * SHORT_CHARACTERS
        assert len(await room.of("a").encode_texts(texts, None, None)) == len(texts)
        assert threading.get_ident() not in room.tokenizer.threads

    run(scenario)


@pytest.mark.parametrize("client", ["same", "other"])
def test_a_text_of_ordinary_length_does_not_wait_for_a_long_one(client: str) -> None:
    async def scenario(room: Room) -> None:
        await room.hold("same", SHORT_CHARACTERS + 1)
        assert await room.of(client).encode("x" * SHORT_CHARACTERS) == [SHORT_CHARACTERS]

    run(scenario)


def test_one_long_text_is_tokenized_at_a_time() -> None:
    async def scenario(room: Room) -> None:
        held = await room.hold("a", SHORT_CHARACTERS + 1)
        other = asyncio.create_task(room.of("b").encode("x" * (SHORT_CHARACTERS + 1)))
        # Later work in the other thread is done before it.
        await room.of("b").encode("x" * SHORT_CHARACTERS)
        assert not other.done()
        room.tokenizer.let_go.set()
        await asyncio.gather(held, other)

    run(scenario)


def test_waiting_and_tokenizing_are_timed_separately() -> None:
    async def scenario(room: Room) -> None:
        held = await room.hold("a", INLINE_CHARACTERS + 1)
        waiting = room.of("b")
        task = asyncio.create_task(waiting.encode("x" * (INLINE_CHARACTERS + 1)))
        await asyncio.sleep(0)
        room.tokenizer.let_go.set()
        await asyncio.gather(held, task)
        assert waiting.queue_seconds > 0
        assert waiting.seconds > 0

    run(scenario)


def test_a_caller_that_leaves_before_its_turn_has_only_waited() -> None:
    async def scenario(room: Room) -> None:
        await room.hold("a", INLINE_CHARACTERS + 1)
        gone = room.of("b")
        task = asyncio.create_task(gone.encode("x" * (INLINE_CHARACTERS + 1)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert gone.queue_seconds > 0
        assert gone.seconds == 0
        assert len(room.tokenizer.threads) == 1

    run(scenario)

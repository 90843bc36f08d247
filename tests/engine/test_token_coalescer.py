"""Tokens are coalesced into fewer messages, and none is lost."""

import itertools

import pytest

from shaperouter_service.generation.run_events import InputUsage, NewTokens, TokenLogprobs
from shaperouter_service.worker import token_coalescer
from shaperouter_service.worker.token_coalescer import TokenCoalescer


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that advances by a second at each reading."""
    clock = itertools.count()
    monkeypatch.setattr(token_coalescer.time, "monotonic", lambda: next(clock))


def new(*token_ids: int) -> NewTokens:
    return NewTokens(token_ids, [TokenLogprobs(token, -token / 4) for token in token_ids])


def ids(tokens: NewTokens | None) -> list[int]:
    return [] if tokens is None else list(tokens.token_ids)


def test_without_an_interval_nothing_is_held_back() -> None:
    coalescer = TokenCoalescer(0)
    assert [ids(coalescer.add(new(token))) for token in range(3)] == [[0], [1], [2]]


@pytest.mark.usefixtures("seconds")
def test_the_first_tokens_are_sent_at_once_and_later_ones_after_the_interval() -> None:
    coalescer = TokenCoalescer(2.5)
    # `add` reads the clock once, and once more if it sends.
    sent = [ids(coalescer.add(new(token))) for token in range(8)]
    assert sent == [[0], [], [], [1, 2, 3], [], [], [4, 5, 6], []]
    assert ids(coalescer.flush()) == [7]


def test_what_was_read_is_sent_once_with_the_first_tokens() -> None:
    coalescer = TokenCoalescer(1000)
    usage = InputUsage(cached_prompt_tokens=32, padded_prompt_tokens=16)
    first = coalescer.add(NewTokens([1], input_usage=usage))
    assert first is not None
    assert first.input_usage == usage
    coalescer.add(new(2))
    rest = coalescer.flush()
    assert rest is not None
    assert rest.input_usage is None


def test_what_was_read_is_kept_until_there_are_tokens() -> None:
    coalescer = TokenCoalescer(0)
    usage = InputUsage(padded_source_tokens=24)
    assert coalescer.add(NewTokens([], input_usage=usage)) is None
    first = coalescer.add(new(1))
    assert first is not None
    assert first.input_usage == usage


def test_flush_returns_the_rest_once() -> None:
    coalescer = TokenCoalescer(1000)
    coalescer.add(new(1))
    coalescer.add(new(2, 3))
    coalescer.add(new(4))
    rest = coalescer.flush()
    assert ids(rest) == [2, 3, 4]
    assert rest is not None
    assert [one.token_id for one in rest.logprobs] == [2, 3, 4]
    assert coalescer.flush() is None

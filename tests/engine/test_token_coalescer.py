"""Tokens are coalesced into fewer messages, and none is lost."""

import itertools

import pytest

from shaperouter_service.generation.run_events import NewTokens, TokenLogprobs
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

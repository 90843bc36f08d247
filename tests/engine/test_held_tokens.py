"""Tokens for callers who read none before the end: told less often, and none is lost."""

import itertools

import pytest

from shaperouter_service.generation.run_events import NewTokens, TokenLogprobs
from shaperouter_service.worker import held_tokens
from shaperouter_service.worker.held_tokens import HeldTokens


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by a second whenever it is read."""
    clock = itertools.count()
    monkeypatch.setattr(held_tokens.time, "monotonic", lambda: next(clock))


def new(*token_ids: int) -> NewTokens:
    return NewTokens(token_ids, [TokenLogprobs(token, -token / 4) for token in token_ids])


def ids(tokens: NewTokens | None) -> list[int]:
    return [] if tokens is None else list(tokens.token_ids)


def test_without_an_interval_nothing_is_held() -> None:
    held = HeldTokens(0)
    assert [ids(held.add(new(token))) for token in range(3)] == [[0], [1], [2]]


@pytest.mark.usefixtures("seconds")
def test_the_first_are_told_at_once_and_later_ones_when_the_interval_has_passed() -> None:
    held = HeldTokens(2.5)
    # The clock is read once for what is held, and once more where it is told.
    told = [ids(held.add(new(token))) for token in range(8)]
    assert told == [[0], [], [], [1, 2, 3], [], [], [4, 5, 6], []]
    assert ids(held.release()) == [7]


def test_the_end_tells_the_rest_and_nothing_twice() -> None:
    held = HeldTokens(1000)
    held.add(new(1))
    held.add(new(2, 3))
    held.add(new(4))
    rest = held.release()
    assert ids(rest) == [2, 3, 4]
    assert rest is not None
    assert [one.token_id for one in rest.logprobs] == [2, 3, 4]
    assert held.release() is None

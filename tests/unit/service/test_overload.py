"""Overload: waits and deadlines that cannot be kept are refused before anything is started."""

import contextlib
from collections.abc import Iterator

import pytest

from harness.routing import MODEL, option
from shaperouter_service.errors import DeadlineTooShortError, OverloadedError
from shaperouter_service.fleet.overload import OverloadGuard

LIMIT = 12.0


@contextlib.contextmanager
def waiting(guard: OverloadGuard, **clients: int) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for client, count in clients.items():
            for _ in range(count):
                stack.enter_context(guard.waiting(client))
        yield


def admits(guard: OverloadGuard, client: str, queue: float) -> bool:
    try:
        guard.check_queue(client, MODEL, option(queue))
    except OverloadedError:
        return False
    return True


def test_one_client_can_fill_the_waiting_time_and_no_more() -> None:
    guard = OverloadGuard(LIMIT)
    with waiting(guard, one=7):
        assert admits(guard, "one", 0.99 * LIMIT)
        assert not admits(guard, "one", 1.01 * LIMIT)


def test_who_asks_for_little_is_let_in_behind_a_flood() -> None:
    guard = OverloadGuard(LIMIT)
    with waiting(guard, flood=19):
        assert not admits(guard, "flood", 1.01 * LIMIT)
        # A twentieth of what waits is its own, and as much of the other's goes before it.
        assert admits(guard, "new", 9.9 * LIMIT)
        assert not admits(guard, "new", 10.1 * LIMIT)


def test_clients_that_ask_for_as_much_as_each_other_are_refused_at_the_same_wait() -> None:
    guard = OverloadGuard(LIMIT)
    with waiting(guard, one=5, other=5):
        assert admits(guard, "one", 0.9 * LIMIT)
        assert not admits(guard, "one", 1.01 * LIMIT)
        assert not admits(guard, "other", 1.01 * LIMIT)


def test_who_has_stopped_waiting_is_forgotten() -> None:
    guard = OverloadGuard(LIMIT)
    with waiting(guard, flood=20):
        pass
    with waiting(guard, other=20):
        assert admits(guard, "flood", 9.9 * LIMIT)


def test_a_refusal_says_how_long_the_wait_would_be_and_when_to_come_again() -> None:
    with pytest.raises(OverloadedError, match=r"would wait 16 s for a slot, limit 12 s") as refusal:
        OverloadGuard(LIMIT).check_queue("a", MODEL, option(16.0))
    assert refusal.value.retry_after == pytest.approx(4.0)


def test_a_deadline_that_nothing_can_meet_is_refused_with_both_times() -> None:
    with pytest.raises(
        DeadlineTooShortError, match=r"needs 5.5 s .* at least, and its deadline is in 2 s"
    ):
        OverloadGuard.check_deadline(MODEL, option(stall=4.0), least_share=1.0, seconds_left=2.0)


def test_a_deadline_that_may_be_met_is_let_in() -> None:
    OverloadGuard.check_deadline(MODEL, option(stall=4.0), least_share=1.0, seconds_left=4.0)
    OverloadGuard.check_deadline(MODEL, option(stall=4.0), least_share=1.0, seconds_left=None)


def test_a_request_that_may_end_early_needs_time_for_its_first_tokens_alone() -> None:
    long = option(decoding=100.0)
    OverloadGuard.check_deadline(MODEL, long, least_share=0.01, seconds_left=2.0)
    with pytest.raises(DeadlineTooShortError):
        OverloadGuard.check_deadline(MODEL, long, least_share=1.0, seconds_left=2.0)


def test_what_is_only_guessed_refuses_nothing() -> None:
    guessed = option(100.0, decoding=100.0, informed=False)
    OverloadGuard(LIMIT).check_queue("a", MODEL, guessed)
    OverloadGuard.check_deadline(MODEL, guessed, least_share=1.0, seconds_left=1.0)

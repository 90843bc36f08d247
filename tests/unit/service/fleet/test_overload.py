"""Overload: waits and deadlines that cannot be kept are refused before anything is started."""

import contextlib
from collections.abc import Iterator

import pytest

from harness.routing import option
from shaperouter_service.errors import DeadlineTooShortError, OverloadedError
from shaperouter_service.fleet.overload import OverloadGuard
from shaperouter_service.routing.decision import Option

LIMIT = 12.0


@contextlib.contextmanager
def waiting(guard: OverloadGuard, at: Option | None = None, **clients: int) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for client, count in clients.items():
            for _ in range(count):
                stack.enter_context(guard.waiting(client, at or option()))
        yield


def check(
    guard: OverloadGuard,
    client: str,
    at: Option,
    *,
    min_share: float = 1.0,
    seconds_left: float | None = None,
) -> None:
    device_seconds = at.prefill_seconds + min_share * at.decode_seconds
    guard.check(client, at, device_seconds=device_seconds, seconds_left=seconds_left)


def admits(guard: OverloadGuard, client: str, queue: float) -> bool:
    try:
        check(guard, client, option(queue))
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
        # A twentieth of the waiting work is its own, and as much of the other client's comes first.
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


@pytest.mark.parametrize("elsewhere", [option(worker="b"), option(beams=4)])
def test_who_waits_in_another_queue_is_not_counted(elsewhere: Option) -> None:
    guard = OverloadGuard(LIMIT)
    with waiting(guard, elsewhere, other=19):
        assert not admits(guard, "new", 1.01 * LIMIT)
    with waiting(guard, flood=19), waiting(guard, elsewhere, new=19):
        assert admits(guard, "new", 9.9 * LIMIT)


def test_a_refusal_says_how_long_the_wait_would_be_and_when_to_come_again() -> None:
    with pytest.raises(OverloadedError, match=r"would wait 16 s for a slot, limit 12 s") as refusal:
        check(OverloadGuard(LIMIT), "a", option(16.0))
    assert refusal.value.retry_after == pytest.approx(4.0)


def test_a_deadline_that_nothing_can_meet_is_refused_with_what_takes_the_time() -> None:
    told = r"needs at least 5.5 s .* \(queue 0 s, compilation 4 s, device 1.5 s\), .* is in 2 s"
    with pytest.raises(DeadlineTooShortError, match=told):
        check(OverloadGuard(LIMIT), "a", option(stall=4.0), seconds_left=2.0)


def test_a_deadline_that_may_be_met_is_let_in() -> None:
    check(OverloadGuard(LIMIT), "a", option(stall=4.0), seconds_left=4.0)
    check(OverloadGuard(LIMIT), "a", option(stall=4.0), seconds_left=None)


def test_a_deadline_is_held_against_the_wait_that_is_the_clients_own() -> None:
    guard = OverloadGuard(LIMIT)
    with waiting(guard, flood=19):
        # A tenth of the queue, and 1.5 s after it.
        check(guard, "new", option(10.0), seconds_left=2.5)
        with pytest.raises(DeadlineTooShortError):
            check(guard, "flood", option(10.0), seconds_left=2.5)


def test_a_request_that_may_end_early_needs_time_for_its_first_tokens_alone() -> None:
    guard, long = OverloadGuard(LIMIT), option(decoding=100.0)
    check(guard, "a", long, min_share=0.01, seconds_left=2.0)
    with pytest.raises(DeadlineTooShortError):
        check(guard, "a", long, seconds_left=2.0)


def test_what_is_only_guessed_refuses_nothing() -> None:
    guessed = option(100.0, decoding=100.0, informed=False)
    check(OverloadGuard(LIMIT), "a", guessed, seconds_left=1.0)

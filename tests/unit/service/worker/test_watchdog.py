"""A device call that does not return is noticed, and no other call is."""

import threading
from types import SimpleNamespace

import pytest

from harness.logs import capture_logs
from harness.waiting import wait_until
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.worker.watchdog import CHECKS, Watchdog

SIGNATURE = Signature(model="tiny", kind=GraphKind.DECODE, rows=1, length=32, beams=1)


@pytest.fixture
def watchdog() -> Watchdog:
    """A watchdog that checks only on request."""
    return Watchdog(30.0, on_hang=lambda: None)


def test_a_call_that_does_not_come_back_is_named_and_ends_the_process() -> None:
    ended = threading.Event()
    watchdog = Watchdog(0.1, on_hang=ended.set)
    with capture_logs() as lines:
        watchdog.start()
        runs = [SimpleNamespace(request_id=name) for name in ("b", "a", "b")]
        with watchdog.watching(SIGNATURE, runs):
            wait_until(ended.is_set)
        watchdog.join()
    (line,) = lines
    assert line["event"] == "device call hung"
    assert line["graph"] == str(SIGNATURE)
    assert line["seconds"] >= 0.1
    assert line["request_ids"] == ["a", "b"]


def test_a_call_is_given_its_time(watchdog: Watchdog) -> None:
    with watchdog.watching(SIGNATURE, []):
        # The first look finds it, and those that follow tell how long it takes.
        assert [watchdog.check() for _ in range(CHECKS)] == [None] * CHECKS
        hung = watchdog.check()
    assert hung is not None
    assert hung.signature == SIGNATURE


def test_many_calls_that_each_come_back_are_well(watchdog: Watchdog) -> None:
    for _ in range(5 * CHECKS):
        with watchdog.watching(SIGNATURE, []):
            assert watchdog.check() is None


def test_having_nothing_to_do_is_well(watchdog: Watchdog) -> None:
    assert [watchdog.check() for _ in range(5 * CHECKS)] == [None] * 5 * CHECKS

"""The device leaves half of its time to compilations that requests wait for."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from shaperouter_service.worker import device
from shaperouter_service.worker.device import MAX_PAUSE, DeviceThread

# Seconds on the fake clock.
SHORT, LONG = 0.05, 5.0
# After this time in a pause, something wakes the thread.
PART = 0.02


class Clock:
    """A clock that stands still until something takes time."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Lane:
    """Takes one turn, and fails in the next one, which ends the thread."""

    isolates = False

    def __init__(self, clock: Clock, *, seconds: float, waits: bool) -> None:
        self.waits_for_graph = waits
        self._clock, self._seconds = clock, seconds
        self._turns = 0

    def turn(self) -> bool:
        self._turns += 1
        if self._turns > 1:
            raise RuntimeError("the second turn")
        self._clock.now += self._seconds
        return True

    def let_go(self) -> None:
        """Has nothing to drop; only a lane that isolates a run would ask for it."""


class Wake:
    """Records the pauses instead of waiting. Others wake the thread several times in each."""

    def __init__(self, clock: Clock, on_wait: Callable[[], None]) -> None:
        self.paused = 0.0
        self._clock, self._on_wait = clock, on_wait

    def clear(self) -> None:
        pass

    def wait(self, seconds: float) -> None:
        part = min(seconds, PART)
        self._clock.now += part
        self.paused += part
        self._on_wait()


def _paused(
    monkeypatch: pytest.MonkeyPatch,
    *,
    seconds: float = SHORT,
    waits: bool = True,
    shares_cores: bool = True,
    becomes_ready: bool = False,
) -> float:
    """Seconds of pauses after a turn beside a request that may wait for a graph.

    Args:
        monkeypatch: Replaces the clock.
        seconds: Length of the turn.
        waits: Whether a request waits.
        shares_cores: As for the thread.
        becomes_ready: Whether the graph becomes ready in the first pause.
    """
    clock = Clock()
    waiting = Lane(clock, seconds=0.0, waits=waits)
    lanes = [waiting, Lane(clock, seconds=seconds, waits=False)]

    def on_wait() -> None:
        waiting.waits_for_graph = not becomes_ready

    wake = Wake(clock, on_wait)
    monkeypatch.setattr(device, "time", SimpleNamespace(monotonic=clock))
    defects: list[None] = []
    thread = DeviceThread(
        lambda: lanes,
        on_turn=lambda: None,
        on_idle=lambda: False,
        on_defect=lambda: defects.append(None),
        shares_cores=shares_cores,
    )
    monkeypatch.setattr(thread, "_wake", wake)
    thread.run()
    assert defects == [None]
    return wake.paused


def test_the_device_pauses_for_as_long_as_its_turns_took(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _paused(monkeypatch) == pytest.approx(SHORT)


def test_no_pause_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _paused(monkeypatch, seconds=LONG) == pytest.approx(MAX_PAUSE)


def test_a_graph_that_becomes_ready_ends_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _paused(monkeypatch, becomes_ready=True) == pytest.approx(PART)


def test_the_device_does_not_pause_if_no_request_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _paused(monkeypatch, waits=False) == 0


def test_a_device_with_cores_of_its_own_does_not_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _paused(monkeypatch, shares_cores=False) == 0

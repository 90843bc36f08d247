"""The device leaves half of its time to compilations that requests wait for."""

from types import SimpleNamespace

import pytest

from shaperouter_service.worker import device
from shaperouter_service.worker.device import MAX_PAUSE, DeviceThread

# Seconds on the fake clock.
SHORT, LONG = 0.05, 5.0


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
        raise NotImplementedError


class Wake:
    """Records the pauses instead of waiting."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def clear(self) -> None:
        pass

    def wait(self, seconds: float) -> None:
        self.pauses.append(seconds)


def _pauses(
    monkeypatch: pytest.MonkeyPatch,
    *,
    seconds: float = SHORT,
    waits: bool = True,
    shares_cores: bool = True,
) -> list[float]:
    """The pauses after a turn beside a request that may wait."""
    clock, wake = Clock(), Wake()
    monkeypatch.setattr(device, "time", SimpleNamespace(monotonic=clock))
    lanes = [
        Lane(clock, seconds=0.0, waits=waits),
        Lane(clock, seconds=seconds, waits=False),
    ]
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
    return wake.pauses


def test_the_device_pauses_for_as_long_as_its_turns_took(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _pauses(monkeypatch) == [pytest.approx(SHORT)]


def test_no_pause_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _pauses(monkeypatch, seconds=LONG) == [MAX_PAUSE]


def test_the_device_does_not_pause_if_no_request_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _pauses(monkeypatch, waits=False) == []


def test_a_device_with_cores_of_its_own_does_not_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _pauses(monkeypatch, shares_cores=False) == []

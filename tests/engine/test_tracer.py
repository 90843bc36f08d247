"""Graphs are traced one at a time, in the order in which threads took them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from harness.waiting import wait_until
from shaperouter_service.graphs.tracer import Tracer


class FakeBuilder:
    def __init__(self, name: str, traced: list[str], go_on: threading.Event | None = None) -> None:
        self._name, self._traced, self._go_on = name, traced, go_on

    def trace(self) -> None:
        self._traced.append(self._name)
        if self._go_on is not None:
            assert self._go_on.wait(60)
        if self._name == "broken":
            raise ValueError("cannot be traced")


def test_of_the_graphs_that_wait_the_one_that_was_taken_first_is_next() -> None:
    tracer, traced, go_on = Tracer(), list[str](), threading.Event()
    tracer.start()

    def trace(name: str, taken: float, go_on: threading.Event | None = None) -> float:
        builder: Any = FakeBuilder(name, traced, go_on)
        return tracer.trace(builder, taken)

    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(trace, "running", 9.0, go_on)
        wait_until(lambda: traced == ["running"])
        later = []
        for number, (name, taken) in enumerate([("late", 3.0), ("broken", 2.0), ("early", 1.0)]):
            later.append(threads.submit(trace, name, taken))
            wait_until(lambda number=number: len(tracer._waiting) == number + 1)
        go_on.set()
        late, broken, early = later
        assert first.result() <= early.result() <= late.result()
        with pytest.raises(ValueError, match="cannot be traced"):
            broken.result()
    assert traced == ["running", "early", "broken", "late"]

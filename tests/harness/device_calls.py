"""The calls of graphs that an engine makes, in order."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from harness.engine import Bench
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.worker.run import Run
from shaperouter_service.worker.scheduler import LaneScheduler
from shaperouter_service.worker.watchdog import Watchdog


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of a graph.

    Attributes:
        signature: The signature of the graph.
        runs: The runs that it served.
        generated: Number of tokens that each run had before.
    """

    signature: Signature
    runs: Sequence[Run]
    generated: Sequence[int]


def record_calls(
    patch: pytest.MonkeyPatch, before: Callable[[Call], None] = lambda _: None
) -> list[Call]:
    """Records all calls while the patch lasts.

    Args:
        patch: Undoes the recording.
        before: Called before each call, on the device thread.
    """
    calls: list[Call] = []
    watching = Watchdog.watching

    @contextmanager
    def recording(self: Watchdog, signature: Signature, runs: Sequence[Run]) -> Iterator[None]:
        generated = [run.generated for run in runs]
        calls.append(Call(signature=signature, runs=list(runs), generated=generated))
        before(calls[-1])
        with watching(self, signature, runs):
            yield

    patch.setattr(Watchdog, "watching", recording)
    return calls


def record_calls_left(patch: pytest.MonkeyPatch, bench: Bench, lane: LaneScheduler) -> list[float]:
    """Records, before each call that reads, how many such calls a lane expects until all is read.

    Args:
        patch: Undoes the recording.
        bench: The engine.
        lane: One of its lanes.
    """
    left: list[float] = []
    read = lane.reader.read

    def recording(runs: Sequence[Run]) -> float | None:
        if any(run.is_to_be_read for run in runs):
            with pytest.MonkeyPatch.context() as priced:
                priced.setattr(bench.parts.graphs, "step_seconds", lambda _: 1.0)
                left.append(lane.covers.reading_seconds(runs))
        return read(runs)

    patch.setattr(lane.reader, "read", recording)
    return left

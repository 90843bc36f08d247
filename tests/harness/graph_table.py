"""A graph table with programs that tests compile, fail and hold."""

import threading
from collections.abc import Sequence
from typing import Any

from shaperouter_service.graphs import CompileBudget, GraphBuilder, GraphTable
from shaperouter_service.routing.costs import Costs, Dimensions
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import CompileMode
from shaperouter_service.traffic_record import TrafficRecorder


class FakeProgram:
    """A program whose compilation blocks until the test releases it."""

    def __init__(self, error: str = "") -> None:
        self.traces = 0
        self.go_on = threading.Event()
        self._error = error

    def lower(self) -> None:
        self.traces += 1

    def load(self, _: None) -> None:
        pass

    def compile(self) -> None:
        assert self.go_on.wait(60)
        if self._error:
            raise RuntimeError(self._error)


# The name of a model that has just been removed.
REMOVED = "removed"

DIMENSIONS = Dimensions(weight_bytes=1_000_000, cache_bytes_per_token=1_000, prefill_piece=128)


class Table:
    """A table of fake programs, with one compile thread."""

    def __init__(
        self,
        error: str = "",
        *,
        max_graphs: int = 100,
        max_memory_bytes: int = 0,
        first: Sequence[Signature] = (),
    ) -> None:
        self.programs: dict[Signature, FakeProgram] = {}
        self.error = error
        self.changes = 0
        self.table = GraphTable(
            self._build,
            costs=Costs({"m": DIMENSIONS}),
            recorder=TrafficRecorder(None, {"m": Ladders.default(max_length=1024, slots=4)}),
            budget=CompileBudget(
                mode=CompileMode.LAZY,
                max_graphs=max_graphs,
                max_memory_bytes=max_memory_bytes,
                first=first,
            ),
            threads=1,
            on_change=self._changed,
            make_builder=GraphBuilder,
        )

    def _changed(self) -> None:
        self.changes += 1

    def _build(self, signature: Signature) -> Any:
        if signature.model == REMOVED:
            raise KeyError(signature.model)
        self.programs[signature] = FakeProgram(self.error)
        return self.programs[signature]

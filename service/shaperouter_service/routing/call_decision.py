"""The decision for calls of models that answer once: which worker answers soonest.

A call starts at once on any ready graph that covers its sizes; one with fewer rows computes it in
several parts. Only a call without a cover waits, for the first graph that covers it.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.choice import (
    Decision,
    NoOption,
    WorkerOption,
    choose,
    options_of,
)
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.snapshots import GraphState
from shaperouter_service.routing.views import WorkerView


@dataclass(frozen=True, kw_only=True)
class CallShape:
    """The sizes of a call, within the ladders of its model.

    Attributes:
        model: Name of the model.
        rows: Size of the batch; 1 if the model has none.
        sizes: Sizes of the other axes.
    """

    model: str
    rows: int
    sizes: tuple[int, ...] = ()

    @property
    def elements(self) -> int:
        """Rows times the product of the other sizes."""
        return self.rows * math.prod(self.sizes)

    def tight(self, ladders: CallLadders) -> Signature:
        """The smallest graph that covers it; if it is split, the graph of a full part."""
        rows = self.rows if ladders.rows is None else min(self.rows, ladders.rows.maximum)
        return ladders.tight(self.model, rows=rows, sizes=self.sizes)

    def one_row(self, ladders: CallLadders) -> Signature:
        """The smallest graph that computes it, in as many parts as needed."""
        rows = self.rows if ladders.rows is None else 1
        return ladders.tight(self.model, rows=rows, sizes=self.sizes)


@dataclass(frozen=True, kw_only=True)
class CallOption(WorkerOption):
    """An option to serve a call.

    Attributes:
        graph: The graph that computes it.
        call_seconds: Computing it, in as many parts as needed.
    """

    graph: Signature
    call_seconds: float

    @property
    def graphs(self) -> list[Signature]:
        """Its graph."""
        return [self.graph]

    @property
    def device_seconds(self) -> float:
        """Seconds of computing it."""
        return self.call_seconds

    @property
    def queue(self) -> tuple[str, str, int]:
        """The model's queue on the worker."""
        return self.worker, self.graph.model, 0


def decide_call(
    shape: CallShape, workers: Iterable[WorkerView], now: float
) -> Decision[CallOption] | NoOption:
    """Finds the option that ends soonest. Equal inputs give equal decisions.

    A worker that would refuse the call is only an option if all would.

    Args:
        shape: The sizes of the call.
        workers: The workers that have its model.
        now: The time on the monotonic clock of the views, in seconds.

    Raises:
        OverLadderError: A size of the call is larger than any of them allows.
    """
    found = options_of(
        workers, lambda worker: [(_can_serve(shape, worker), _option(shape, worker, now))]
    )
    able = [option for can_serve, option in found if can_serve]
    return choose(able or [option for _, option in found])


def _can_serve(shape: CallShape, worker: WorkerView) -> bool:
    """Whether a worker has a graph for a call, or may make one.

    It may always make a first graph, which serves all calls. With exact sizes there is none.
    """
    ladders = worker.calls[shape.model]
    if worker.room or ladders.first(shape.model) is not None:
        return True
    one_row = shape.one_row(ladders)
    return any(
        (graph.state is GraphState.READY or graph.state.on_the_way) and signature.covers(one_row)
        for signature, graph in worker.graphs.items()
    )


def _option(shape: CallShape, worker: WorkerView, now: float) -> CallOption:
    model, costs, ladders = shape.model, worker.costs, worker.calls[shape.model]
    tight = shape.tight(ladders)
    # A graph of any number of rows serves the call.
    one_row = shape.one_row(ladders)
    parted = ladders.rows is not None
    rows = shape.rows if parted else 1
    graph = worker.cheapest(one_row, rows)
    ready_at = now
    if graph is None:
        graph, ready_at = min(
            ((graph, worker.ready_at(graph, now)) for graph in _coming(worker, one_row, tight)),
            key=lambda coming: (coming[1], coming[0].cost_order),
        )
    # Lanes and queues of calls take turns.
    turns = 1 + worker.busy((model, 0))
    stall = ready_at - now
    queue = turns * _queue_seconds(worker, model, graph)
    return CallOption(
        worker=worker.name,
        graph=graph,
        tight=tight,
        queue_seconds=queue,
        # Compilations continue while the call is queued.
        stall_seconds=max(0.0, stall - queue),
        call_seconds=turns * math.ceil(rows / graph.rows) * costs.step_seconds(graph),
        informed=costs.is_informed(graph) and (stall == 0 or costs.has_compiled(model)),
    )


def _coming(worker: WorkerView, one_row: Signature, tight: Signature) -> Iterator[Signature]:
    """The graphs that a call without a cover may wait for: those on the way, and its own.

    A worker without room for its own makes the largest of the same exact sizes.
    """
    if worker.room or worker.state(tight).on_the_way:
        yield tight
    else:
        yield worker.calls[tight.model].largest(tight)
    for signature, graph in worker.graphs.items():
        if graph.state.on_the_way and signature.covers(one_row):
            yield signature


def _queue_seconds(worker: WorkerView, model: str, graph: Signature) -> float:
    """Time to compute the calls of a model that came earlier.

    Calls are joined, so they take as long as their elements do on the graph that computes elements
    fastest.
    """
    queue = worker.call_queue(model)
    if not queue.elements:
        return 0.0
    ready = worker.ready(model, GraphKind.CALL, 1) or [graph]
    return queue.elements * min(
        worker.costs.step_seconds(signature) / signature.elements for signature in ready
    )

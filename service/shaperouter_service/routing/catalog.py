"""The catalog: which worker has which model, which graphs, and how busy it is.

One owner of that truth. It is filled from the workers' snapshots alone, so a router that starts
anew learns everything again.
"""

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shaperouter.v1 import graph_pb2, model_pb2, worker_pb2
from shaperouter_service.errors import InvalidRequestError, UnknownModelError, Violation
from shaperouter_service.messages import (
    STATES_FROM_PROTO,
    ladders_from_proto,
    signature_from_proto,
)
from shaperouter_service.routing.costs import Costs, Dimensions
from shaperouter_service.routing.decision import Ask
from shaperouter_service.routing.views import GraphState, GraphView, LaneView, WorkerView

# Seconds that a request may be on its way to its worker, and a snapshot without it on its way here.
# Anything longer would count many requests twice: what came to a worker is in its next snapshot, a
# fifth of a second later at most, and all that came since the last would be counted again.
ON_THE_WAY = 0.05

# What a compilation is thought to need still, of its expected time, once that has passed.
OVERDUE = 0.1


class WorkerId(NamedTuple):
    """One life of a worker: while one process ends, its successor may live beside it.

    Attributes:
        name: What both are called.
        incarnation: What tells them apart.
    """

    name: str
    incarnation: str

    @classmethod
    def of(cls, snapshot: worker_pb2.WatchResponse) -> "WorkerId":
        """Whose snapshot it is."""
        return cls(snapshot.worker, snapshot.incarnation)


class Assignment(NamedTuple):
    """A request that was given to a worker, at a time on the monotonic clock."""

    at: float
    worker: WorkerId
    beams: int
    ask: Ask


class Catalog:
    """The newest snapshot of every worker that is connected.

    Belongs to one thread, the event loop's.
    """

    def __init__(self, models: Sequence[str]) -> None:
        """Starts with no worker.

        Args:
            models: Names of the models that workers are expected to have.
        """
        self.model_names = tuple(sorted(models))
        self._workers: dict[WorkerId, worker_pb2.WatchResponse] = {}
        self._views: dict[WorkerId, WorkerView] = {}
        # What may still be on its way to a worker, from old to new.
        self._assigned: dict[WorkerId, deque[Assignment]] = {}
        # Kept when the last worker goes: a model's limits outlive a restart.
        self._models: dict[str, model_pb2.Model] = {}

    def update(self, snapshot: worker_pb2.WatchResponse) -> None:
        """Takes in what a worker says of itself."""
        worker, now = WorkerId.of(snapshot), time.monotonic()
        self._workers[worker] = snapshot
        view = view_of(snapshot, now)
        for assignment in self._on_the_way(worker, now):
            view = _joined(view, assignment)
        self._views[worker] = view
        for model in snapshot.models:
            self._models[model.name] = model

    def lose(self, worker: WorkerId) -> None:
        """Forgets a worker that is not connected any more."""
        self._workers.pop(worker, None)
        self._views.pop(worker, None)
        self._assigned.pop(worker, None)

    def resolve(self, name: str) -> str:
        """Returns the model a request means: by name, or the only one.

        Raises:
            UnknownModelError: There is no such model.
            InvalidRequestError: None was named, and there are several.
        """
        if not name:
            if len(self.model_names) == 1:
                return self.model_names[0]
            known = ", ".join(self.model_names)
            raise InvalidRequestError(
                Violation(field="model", description=f"must be set; this service has {known}")
            )
        if name not in self.model_names:
            raise UnknownModelError(name, list(self.model_names))
        return name

    def model(self, name: str) -> model_pb2.Model | None:
        """Describes a model, with the number of workers ready for it; None before it is known."""
        if name not in self._models:
            return None
        model = model_pb2.Model()
        model.CopyFrom(self._models[name])
        model.ready_workers = len({worker.name for worker in self.workers(name)})
        return model

    def workers(self, model: str) -> list[WorkerId]:
        """The connected workers that have a model, each life of one by itself."""
        return [
            worker
            for worker, snapshot in self._workers.items()
            if any(served.name == model for served in snapshot.models)
        ]

    def bearers(self) -> dict[str, WorkerId]:
        """The life of each worker that requests are given to, by name; see `bearers`."""
        return bearers(self._workers)

    def views(self) -> dict[WorkerId, WorkerView]:
        """The workers that requests are given to, for routing."""
        return {worker: self._views[worker] for worker in self.bearers().values()}

    def view(self, worker: WorkerId) -> WorkerView | None:
        """One life of a worker, whether or not requests are given to it; None once it is lost."""
        return self._views.get(worker)

    def assign(self, worker: WorkerId, beams: int, ask: Ask) -> Assignment:
        """Counts a request among a worker's load, until its snapshots must have it.

        Args:
            worker: It was given to.
            beams: Width of the lane it will be in.
            ask: The request.

        Returns:
            What `arrived` takes.
        """
        assignment = Assignment(time.monotonic(), worker, beams, ask)
        self._on_the_way(worker, assignment.at).append(assignment)
        self._views[worker] = _joined(self._views[worker], assignment)
        return assignment

    def arrived(self, assignment: Assignment) -> None:
        """Tells that a request has come to its worker: its snapshots have it, or it has ended."""
        with contextlib.suppress(KeyError, ValueError):
            self._assigned[assignment.worker].remove(assignment)

    def snapshots(self) -> list[worker_pb2.WatchResponse]:
        """The snapshots of the workers that requests are given to."""
        return [self._workers[worker] for worker in self.bearers().values()]

    def graphs(self) -> list[graph_pb2.Graph]:
        """The graphs of the workers that requests are given to, but for cold ones nobody missed."""
        return [graph for snapshot in self.snapshots() for graph in snapshot.graphs]

    def _on_the_way(self, worker: WorkerId, now: float) -> deque[Assignment]:
        assigned = self._assigned.setdefault(worker, deque())
        while assigned and now - assigned[0].at >= ON_THE_WAY:
            assigned.popleft()
        return assigned

    @property
    def ready(self) -> bool:
        """Whether every model has a worker."""
        return all(
            any(
                snapshot.warm and any(model.name == name for model in snapshot.models)
                for snapshot in self._workers.values()
            )
            for name in self.model_names
        )


def _joined(view: WorkerView, assignment: Assignment) -> WorkerView:
    ask = assignment.ask
    return view.joined(
        ask.model,
        assignment.beams,
        tokens=ask.new_tokens,
        prompt_tokens=view.ladders[ask.model].read_tokens(ask.prompt_tokens),
        source_tokens=ask.source_tokens,
    )


def bearers(lives: Mapping[WorkerId, worker_pb2.WatchResponse]) -> dict[str, WorkerId]:
    """The life of each worker that requests are given to, by name.

    While a successor lives beside the process that it replaces, it is the older one until that
    drains: the younger one may have graphs to make yet that the older one has.

    Args:
        lives: Snapshots of those that are connected, in the order in which they came.
    """
    found: dict[str, WorkerId] = {}
    for life, snapshot in lives.items():
        older = found.get(life.name)
        if older is None or (snapshot.warm and not lives[older].warm):
            found[life.name] = life
    return found


def view_of(snapshot: worker_pb2.WatchResponse, now: float) -> WorkerView:
    """A worker for routing, from what it says of itself.

    Args:
        snapshot: The worker's.
        now: When it was made, on the monotonic clock in seconds.
    """
    ladders = {model.name: ladders_from_proto(model.ladders) for model in snapshot.models}
    costs = Costs(
        {
            model.name: Dimensions(
                weight_bytes=model.weight_bytes,
                cache_bytes_per_token=model.kv_cache_bytes_per_token,
                prefill_piece=model.ladders.prefill_piece,
                encoder_weight_bytes=model.encoder_weight_bytes,
                max_source_length=model.max_source_length,
                has_whole_source=model.ladders.has_whole_source,
            )
            for model in snapshot.models
        }
    )
    graphs = {signature_from_proto(graph.signature): graph for graph in snapshot.graphs}
    for signature, graph in graphs.items():
        if graph.step_seconds > 0:
            costs.measured(signature, graph.step_seconds)
        if graph.make_seconds > 0:
            costs.compiled(signature, graph.make_seconds)
    budget = snapshot.budget
    threads = max(1, budget.threads)
    queued = itertools.count()
    views = {}
    for signature, graph in graphs.items():
        state = STATES_FROM_PROTO[graph.state]
        needs = costs.compile_seconds(signature)
        left = needs - graph.state_seconds
        if state is GraphState.QUEUED:
            left = needs * (1 + next(queued) // threads)
        views[signature] = GraphView(
            signature=signature,
            state=state,
            missed_seconds=graph.recent_missed_seconds,
            would_save_seconds=graph.would_save_seconds,
            served_seconds=graph.recent_served_seconds,
            # What takes longer than others did will take a little longer still.
            ready_at=now + max(OVERDUE * needs, left) if state.on_the_way else 0.0,
            retry_at=now + graph.retry_seconds,
            refused=graph.error if state is GraphState.COLD else "",
        )
    return WorkerView(
        name=snapshot.worker,
        ladders=ladders,
        lanes={
            (lane.model, lane.beams): LaneView(
                active=lane.active_slots,
                slots=lane.total_slots,
                queued=lane.queued,
                tokens=lane.backlog_tokens,
                prompts=lane.backlog_prompts,
                prompt_tokens=lane.backlog_prompt_tokens,
                sources=lane.backlog_sources,
                source_tokens=lane.backlog_source_tokens,
            )
            for lane in snapshot.lanes
        },
        graphs=views,
        costs=costs,
        compile_threads=threads,
        room=budget.room,
        exhausted=budget.exhausted,
        compiles=budget.mode != worker_pb2.COMPILE_MODE_FROZEN,
        warm=snapshot.warm,
    )

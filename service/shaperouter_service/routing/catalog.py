"""The catalog: each worker's models, graphs and load.

It is filled only from the workers' snapshots, so a restarted router rebuilds it.
"""

import contextlib
import dataclasses
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from shaperouter_service.errors import InvalidRequestError, UnknownModelError
from shaperouter_service.routing.call_decision import CallShape
from shaperouter_service.routing.costs import Costs, Dimensions
from shaperouter_service.routing.decision import RequestShape
from shaperouter_service.routing.deployments import (
    Deployment,
    RevisionReport,
    RevisionState,
    Target,
    public_name,
)
from shaperouter_service.routing.forecast import OVERDUE
from shaperouter_service.routing.revisions import Revisions
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.snapshots import (
    CompileMode,
    GraphReport,
    GraphState,
    Snapshot,
    WorkerId,
    active_workers,
)
from shaperouter_service.routing.views import GraphView, WorkerView

# Maximum seconds until a request reaches its worker and a snapshot without it reaches the router. A
# longer time would count many requests twice: a request at a worker is in its next snapshot, at
# most a fifth of a second later, and until then it would be counted again.
ON_THE_WAY = 0.05


class Assignment(NamedTuple):
    """A request given to a worker, with the time on the monotonic clock."""

    at: float
    worker: WorkerId
    beams: int
    shape: RequestShape | CallShape


class Catalog:
    """The newest snapshot of every connected worker.

    Only the event loop's thread may use it.

    Attributes:
        revisions: The revisions of each model that requests are sent to.
        version: Counts the changes of snapshots.
    """

    def __init__(
        self,
        models: Sequence[str],
        aliases: Mapping[str, Sequence[Target]] = MappingProxyType({}),
    ) -> None:
        """Starts without workers.

        Args:
            models: Names of the models that workers are expected to have.
            aliases: The aliases that the router is started with.
        """
        self.revisions = Revisions(models, aliases)
        self.version = 0
        self._workers: dict[WorkerId, Snapshot] = {}
        self._views: dict[WorkerId, WorkerView] = {}
        # Requests that may not have reached their workers yet, oldest first.
        self._assigned: dict[WorkerId, deque[Assignment]] = {}
        # Kept when the last worker leaves, because a model's limits outlive a restart.
        self._models: dict[str, ServedModel] = {}
        # Their descriptions as of this version.
        self._descriptions: dict[str, ServedModel] = {}
        # Whether every model has had a ready worker at the same time.
        self._was_complete = False

    @property
    def model_names(self) -> Sequence[str]:
        """The names that requests may use, in order."""
        return self.revisions.names

    def follow(self, deployment: Deployment) -> None:
        """Sends further requests by a deployment; see `Revisions.follow`."""
        self.revisions.follow(deployment)
        self.version += 1
        used = {revision.model for revision in self.revisions.revisions()}
        present = {model.name for snapshot in self._workers.values() for model in snapshot.models}
        self._models = {n: m for n, m in self._models.items() if n in used | present}
        self._descriptions.clear()

    def update(self, snapshot: Snapshot) -> None:
        """Stores a worker's newest snapshot."""
        worker, now = snapshot.worker_id, time.monotonic()
        before = self._workers.get(worker)
        # All workers report all deployments, which seldom change; see `wire.snapshots`.
        if before is None or snapshot.deployments is not before.deployments:
            self.revisions.tell(snapshot.deployments)
        self._workers[worker] = snapshot
        self.version += 1
        self._descriptions.clear()
        view = view_of(snapshot, now)
        for assignment in self._on_the_way(worker, now):
            view = _joined(view, assignment)
        self._views[worker] = view
        for model in snapshot.models:
            self._models[model.name] = model
        self._was_complete = self._was_complete or all(self.ready_workers().values())

    def lose(self, worker: WorkerId) -> None:
        """Removes a worker that is no longer connected."""
        self._workers.pop(worker, None)
        self.version += 1
        self._descriptions.clear()
        self._views.pop(worker, None)
        self._assigned.pop(worker, None)

    def resolve(
        self,
        name: str,
        *,
        serves: Callable[[ServedModel], bool] = lambda _: True,
        call: str = "",
    ) -> str:
        """Returns the name of a request's model: the given one, or the only one that can serve it.

        A name that workers use for a revision is one, too.

        Args:
            name: The requested model, but no alias; empty if the request names none.
            serves: Whether a model can serve the request. Models that no worker has loaded yet are
                assumed to serve it.
            call: What the request does, for the error message, e.g. `transcribe recordings`.

        Raises:
            UnknownModelError: There is no such model.
            InvalidRequestError: No model was named, and not exactly one can serve the request;
                those that are loaded on demand must be named.
        """
        if name:
            if name not in self.model_names and not self.revisions.is_known(name):
                raise UnknownModelError(name, list(self.model_names))
            return name
        # Which models are loaded on demand depends on earlier requests.
        lasting = self.revisions.lasting
        if len(lasting) == 1:
            return lasting[0]
        able = [
            each
            for each in lasting
            if (model := self._models.get(self.revisions.main(each))) is None or serves(model)
        ]
        if len(able) == 1:
            return able[0]
        known = ", ".join(able or self.model_names)
        if not call:
            description = f"must be set; models of this service: {known}"
        elif able:
            description = f"must be set; models that can {call}: {known}"
        else:
            description = f"no model of this service can {call}; its models: {known or 'none'}"
        raise InvalidRequestError.of("model", description)

    def target(self, name: str, request_id: str) -> str:
        """The model that a request to an alias gets; any other name is returned unchanged.

        Models without a ready worker are left out if another one has one.

        Args:
            name: The requested name.
            request_id: Id of the request, which decides.
        """
        if name not in self.revisions.aliases:
            return name
        return self.revisions.pick(
            name, request_id, lambda model: self._is_ready(self.revisions.main(model))
        )

    def revision(self, name: str, request_id: str) -> str:
        """The worker's name of the revision that a request to a model gets.

        Revisions without a ready worker are left out if another one has one.

        Args:
            name: The name of a model, or the worker's name of a revision.
            request_id: Id of the request, which decides.
        """
        return self.revisions.pick(name, request_id, self._is_ready)

    def _is_ready(self, model: str) -> bool:
        return self._ready_workers(model) > 0

    def model(self, name: str) -> ServedModel | None:
        """Describes a model, with the number of workers ready for it; None if it is unknown.

        Args:
            name: What workers call it.
        """
        if name not in self._models:
            return None
        if name not in self._descriptions:
            # Pools may have different limits, and a request goes to a worker that allows it.
            largest = max(
                [self._models[name], *self._served(name)],
                key=lambda model: (model.max_length, model.max_source_length),
            )
            ready = self._ready_workers(name)
            self._descriptions[name] = dataclasses.replace(largest, ready_workers=ready)
        return self._descriptions[name]

    def digests(self, name: str) -> set[str]:
        """The digests of a model's files, which may differ among workers started with it.

        Args:
            name: What workers call it.
        """
        known = {view.digests[name] for view in self._views.values() if name in view.digests}
        return known | ({self._models[name].revision} if name in self._models else set())

    def _served(self, name: str) -> Iterator[ServedModel]:
        """The descriptions of a model by the connected workers."""
        for snapshot in self._workers.values():
            yield from (model for model in snapshot.models if model.name == name)

    def _ready_workers(self, model: str) -> int:
        """Number of workers ready for a model; a worker and its successor count once."""
        return len(
            {
                process.name
                for process in self.workers(model)
                if self._workers[process].warm and self.state(process, model) is RevisionState.READY
            }
        )

    def report(self, worker: WorkerId, model: str) -> RevisionReport | None:
        """The state of a revision on a worker; None if the worker was not asked to load it."""
        snapshot = self._workers.get(worker)
        reports = () if snapshot is None else snapshot.revisions
        return next((report for report in reports if report.model == model), None)

    def reports(self, model: str) -> list[RevisionReport]:
        """The state of a revision on each worker that was asked to load it."""
        return [
            report
            for snapshot in self._workers.values()
            for report in snapshot.revisions
            if report.model == model
        ]

    def progress(self, name: str) -> dict[str, str]:
        """What each worker that loads a revision of a model is doing, by the worker's name."""
        return {
            snapshot.worker: report.progress
            for snapshot in self._workers.values()
            for report in snapshot.revisions
            if public_name(report.model) == name and report.state is RevisionState.LOADING
        }

    def idle_seconds(self, model: str) -> float:
        """Seconds since requests last used a revision; 0 while some do, or while it is loaded."""
        if self.revisions.is_used(model):
            return 0.0
        # A worker that could not load it does not use it.
        loaded = (each for each in self.reports(model) if each.state is not RevisionState.FAILED)
        return min((report.idle_seconds for report in loaded), default=0.0)

    def state(self, worker: WorkerId, model: str) -> RevisionState:
        """The state of a model that a worker has."""
        report = self.report(worker, model)
        return RevisionState.READY if report is None else report.state

    def is_caught_up(self, worker: WorkerId) -> bool:
        """Whether a worker has loaded all that deployments say, as far as it can."""
        snapshot = self._workers[worker]
        has = {deployment.name: deployment for deployment in snapshot.deployments}
        return all(
            has.get(deployment.name) == deployment for deployment in self.revisions.deployments()
        ) and not any(report.state is RevisionState.LOADING for report in snapshot.revisions)

    def workers(self, model: str) -> list[WorkerId]:
        """The connected processes of workers that have a model."""
        return [
            worker
            for worker, snapshot in self._workers.items()
            if any(served.name == model for served in snapshot.models)
        ]

    def active_workers(self) -> dict[str, WorkerId]:
        """The process of each worker that gets requests, by name; see `active_workers`."""
        return active_workers(self._workers)

    def views(self) -> dict[WorkerId, WorkerView]:
        """The workers that get requests, for routing."""
        return {worker: self._views[worker] for worker in self.active_workers().values()}

    def view(self, worker: WorkerId) -> WorkerView | None:
        """One process of a worker, whether or not it gets requests; None once it is lost."""
        return self._views.get(worker)

    def assign(
        self, worker: WorkerId, shape: RequestShape | CallShape, *, beams: int = 0
    ) -> Assignment:
        """Counts a request in a worker's load until the worker's snapshots include it.

        Args:
            worker: The worker that the request was given to.
            shape: The shape of the request.
            beams: Beam width of the lane that a run will use.

        Returns:
            The argument for `arrived`.
        """
        assignment = Assignment(time.monotonic(), worker, beams, shape)
        self._on_the_way(worker, assignment.at).append(assignment)
        self._views[worker] = _joined(self._views[worker], assignment)
        return assignment

    def arrived(self, assignment: Assignment) -> None:
        """Stops counting a request: its worker's snapshots include it, or it has ended."""
        with contextlib.suppress(KeyError, ValueError):
            self._assigned[assignment.worker].remove(assignment)

    def snapshots(self) -> list[Snapshot]:
        """The snapshots of the workers that get requests."""
        return [self._workers[worker] for worker in self.active_workers().values()]

    def graphs(self) -> list[GraphReport]:
        """The graphs of the workers that get requests, except cold ones that no request missed."""
        return [graph for snapshot in self.snapshots() for graph in snapshot.graphs]

    def _on_the_way(self, worker: WorkerId, now: float) -> deque[Assignment]:
        assigned = self._assigned.setdefault(worker, deque())
        while assigned and now - assigned[0].at >= ON_THE_WAY:
            assigned.popleft()
        return assigned

    def ready_workers(self) -> dict[str, int]:
        """Number of workers that are ready for each model that is not loaded on demand."""
        models = {name: self.model(self.revisions.main(name)) for name in self.revisions.lasting}
        return {name: model.ready_workers if model else 0 for name, model in models.items()}

    @property
    def ready(self) -> bool:
        """Whether requests should come.

        At first, once every model that is not loaded on demand has a ready worker. Later, while one
        of them has: the other models must not be lost with the last worker of one.
        """
        workers = self.ready_workers()
        return self._was_complete and (any(workers.values()) or not workers)


def _joined(view: WorkerView, assignment: Assignment) -> WorkerView:
    shape = assignment.shape
    if isinstance(shape, CallShape):
        return view.joined_call(shape.model, rows=shape.rows, elements=shape.elements)
    if (shape.model, assignment.beams) not in view.lanes or shape.model not in view.ladders:
        # The worker has freed the model, and will refuse the request.
        return view
    return view.joined(
        shape.model,
        assignment.beams,
        tokens=shape.likely_tokens,
        prompt_tokens=view.ladders[shape.model].read_tokens(shape.prompt_tokens),
        source_tokens=shape.source_tokens,
    )


def view_of(snapshot: Snapshot, now: float) -> WorkerView:
    """Converts a worker's snapshot to its view for routing.

    Args:
        snapshot: The worker's snapshot.
        now: When it was made, on the monotonic clock in seconds.
    """
    costs = Costs({model.name: Dimensions.of(model) for model in snapshot.models})
    for graph in snapshot.graphs:
        if graph.step_seconds > 0:
            costs.measured(graph.signature, graph.step_seconds)
        if graph.make_seconds > 0:
            costs.compiled(graph.signature, graph.make_seconds)
    budget = snapshot.budget
    threads = max(1, budget.threads)
    queued = itertools.count()
    views = {}
    for graph in snapshot.graphs:
        signature, state = graph.signature, graph.state
        needs = costs.compile_seconds(signature)
        left = needs - graph.state_seconds
        if state is GraphState.QUEUED:
            left = needs * (1 + next(queued) // threads)
        # The worker knows best how fast it makes graphs, which it may only have to load. Those of
        # older versions do not say it.
        left = graph.left_seconds or max(OVERDUE * needs, left)
        views[signature] = GraphView(
            signature=signature,
            state=state,
            missed_seconds=graph.recent_missed_seconds,
            would_save_seconds=graph.would_save_seconds,
            served_seconds=graph.recent_served_seconds,
            ready_at=now + left if state.on_the_way else 0.0,
            retry_at=now + graph.retry_seconds,
            refused=graph.error if state is GraphState.COLD else "",
        )
    return WorkerView(
        name=snapshot.worker,
        ladders={model.name: model.ladders for model in snapshot.models if model.ladders},
        calls={model.name: model.call.ladders for model in snapshot.models if model.call},
        digests={model.name: model.revision for model in snapshot.models},
        lanes={(lane.model, lane.beams): lane for lane in snapshot.lanes},
        call_queues={queue.model: queue for queue in snapshot.call_queues},
        graphs=views,
        costs=costs,
        compile_threads=threads,
        room=budget.room,
        exhausted=budget.exhausted,
        compiles=budget.mode is not CompileMode.FROZEN,
        warm=snapshot.warm,
        memory_bytes=budget.memory_bytes,
        prefixes={kept.model: frozenset(kept.blocks) for kept in snapshot.prefixes},
    )

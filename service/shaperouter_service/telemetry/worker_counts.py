"""The counts in the snapshots of workers, summed over all processes so far.

The counts of a snapshot are those of one process. No sum falls when a worker is replaced, or when
one of several workers frees a model. The counts of a model end once no worker has it, or will load
it again.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace

from prometheus_client.utils import floatToGoString

from shaperouter_service.routing.deployments import public_name
from shaperouter_service.routing.snapshots import (
    GraphReport,
    GraphState,
    Histogram,
    Snapshot,
    WorkerId,
)

# Lost processes of a worker that may only have been silent and may return, although their
# successors have reported. Older ones have ended.
_MAY_RETURN = 3

# The label of a bucket, as Prometheus' own client writes it.
_label: Callable[[float], str] = floatToGoString

# Values of labels; the first one is the model.
Labels = tuple[str, ...]


@dataclass
class Counts:
    """A histogram's counts, summed over processes."""

    bounds: tuple[float, ...] = ()
    counts: list[int] = field(default_factory=list)
    sum: float = 0.0

    def add(self, histogram: "Histogram | Counts") -> None:
        """Adds the counts of a histogram with the same bounds."""
        if not self.counts:
            self.bounds = tuple(histogram.bounds)
            self.counts = [0] * len(histogram.counts)
        self.counts = [a + b for a, b in zip(self.counts, histogram.counts, strict=True)]
        self.sum += histogram.sum

    @property
    def total(self) -> int:
        """The number of observations."""
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        """The counts up to each bound, as Prometheus has them."""
        accumulated = 0
        buckets = []
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            accumulated += count
            buckets.append((_label(bound), float(accumulated)))
        return buckets


@dataclass
class GraphTotals:
    """The counts of one signature, summed over processes."""

    traces: int = 0
    compiles: int = 0
    loads: int = 0
    failures: int = 0
    compile_seconds: Counts = field(default_factory=Counts)
    stall_seconds: Counts = field(default_factory=Counts)

    def add(self, graph: GraphReport) -> None:
        """Adds the counts of a graph of one process."""
        self.traces += graph.traces
        self.compiles += graph.compiles
        self.loads += graph.loads
        self.failures += graph.failures
        self.compile_seconds.add(graph.compile_seconds)
        self.stall_seconds.add(graph.stall_seconds)


def _has_history(graph: GraphReport) -> bool:
    """Whether a graph has counts: one that failed may be refused when it is tried again."""
    counts = graph.traces, graph.compiles, graph.loads, graph.failures
    return any(counts) or any(graph.stall_seconds.counts)


@dataclass
class Totals:
    """The counts of all processes, summed, by labels."""

    graphs: dict[Labels, GraphTotals] = field(default_factory=lambda: defaultdict(GraphTotals))
    device_seconds: dict[Labels, Counts] = field(default_factory=lambda: defaultdict(Counts))
    overhead_seconds: dict[Labels, float] = field(default_factory=lambda: defaultdict(float))
    padding: dict[Labels, int] = field(default_factory=lambda: defaultdict(int))
    padding_checks: dict[Labels, int] = field(default_factory=lambda: defaultdict(int))
    proposed: dict[Labels, int] = field(default_factory=lambda: defaultdict(int))
    accepted: dict[Labels, int] = field(default_factory=lambda: defaultdict(int))
    prefix_hits: dict[Labels, int] = field(default_factory=lambda: defaultdict(int))
    prefix_evictions: dict[Labels, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, snapshot: Snapshot) -> None:
        """Adds the counts of one process."""
        for graph in snapshot.graphs:
            if graph.state is GraphState.COLD and not _has_history(graph):
                continue
            s = graph.signature
            labels = (s.model, s.kind.value, str(s.rows), s.length_text, str(s.beams))
            self.graphs[labels].add(graph)
            self.device_seconds[*labels, snapshot.device].add(graph.device_seconds)
            if graph.overhead_seconds is not None:
                self.overhead_seconds[s.model, s.kind.value] += graph.overhead_seconds
        for lane in snapshot.lanes:
            self.padding[lane.model, "encode"] += lane.encode_padding_tokens
            self.padding[lane.model, "prefill"] += lane.prefill_padding_tokens
            self.padding[lane.model, "decode"] += lane.decode_padding_tokens
            self.padding[lane.model, "align"] += lane.align_padding_tokens
            self.padding[lane.model, "score"] += lane.score_padding_tokens
            of_draft = lane.draft_proposed_tokens, lane.draft_accepted_tokens
            self.proposed[lane.model, "draft"] += of_draft[0]
            self.accepted[lane.model, "draft"] += of_draft[1]
            self.proposed[lane.model, "ngram"] += lane.proposed_tokens - of_draft[0]
            self.accepted[lane.model, "ngram"] += lane.accepted_tokens - of_draft[1]
        for queue in snapshot.call_queues:
            self.padding[queue.model, "call"] += queue.padding_elements
            equal = queue.padding_checks - queue.padding_differences
            self.padding_checks[queue.model, "equal"] += equal
            self.padding_checks[queue.model, "different"] += queue.padding_differences
        for kept in snapshot.prefixes:
            self.prefix_hits[kept.model,] += kept.hit_tokens
            self.prefix_evictions[kept.model,] += kept.evictions

    def remove(self, is_removed: Callable[[str], bool]) -> None:
        """Removes the counts of the models for which `is_removed` returns true."""
        for each in fields(self):
            counts = getattr(self, each.name)
            # Each label set begins with the model.
            for labels in [labels for labels in counts if is_removed(labels[0])]:
                del counts[labels]


def _counted_models(snapshot: Snapshot) -> dict[str, set[str]]:
    """The models that a snapshot has counts of, by the attribute that has them."""
    return {
        "graphs": {graph.signature.model for graph in snapshot.graphs},
        "lanes": {lane.model for lane in snapshot.lanes},
        "call_queues": {queue.model for queue in snapshot.call_queues},
        "prefixes": {kept.model for kept in snapshot.prefixes},
    }


def _counts_of(snapshot: Snapshot, models: Mapping[str, Collection[str]]) -> Snapshot:
    """A snapshot with the counts of some models only; see `_counted_models`."""
    return replace(
        snapshot,
        graphs=[each for each in snapshot.graphs if each.signature.model in models["graphs"]],
        lanes=[each for each in snapshot.lanes if each.model in models["lanes"]],
        call_queues=[each for each in snapshot.call_queues if each.model in models["call_queues"]],
        prefixes=[each for each in snapshot.prefixes if each.model in models["prefixes"]],
    )


class WorkerCounts:
    """The counts of workers by process. Only one thread at a time may use it."""

    def __init__(self) -> None:
        """Starts without workers."""
        # The newest snapshot of each process that reports or may return; and the counts of those
        # that have ended, and of models that a process has freed.
        self._newest: dict[WorkerId, Snapshot] = {}
        self._ended = Totals()
        self._connected: set[WorkerId] = set()

    def observe(self, snapshot: Snapshot) -> None:
        """Takes a worker's newest snapshot."""
        worker = snapshot.worker_id
        if before := self._newest.get(worker):
            self._keep_freed(before, snapshot)
        else:
            self._end_predecessors(worker)
        if worker not in self._connected:
            # One that returns is the last one to connect.
            self._newest.pop(worker, None)
            self._connected.add(worker)
        self._newest[worker] = snapshot

    def lose(self, worker: WorkerId) -> None:
        """Notes that a worker is lost; its counts stay."""
        self._connected.discard(worker)

    def connected(self) -> dict[WorkerId, Snapshot]:
        """The newest snapshots of the connected workers, in the order in which they connected."""
        return {
            worker: snapshot
            for worker, snapshot in self._newest.items()
            if worker in self._connected
        }

    def totals(self) -> Totals:
        """The sums of all processes, without models that have gone."""
        self._remove_unused()
        totals = copy.deepcopy(self._ended)
        for snapshot in self._newest.values():
            totals.add(snapshot)
        return totals

    def _keep_freed(self, before: Snapshot, after: Snapshot) -> None:
        """Keeps the counts of models that a process no longer reports."""
        now = _counted_models(after)
        freed = {name: models - now[name] for name, models in _counted_models(before).items()}
        if any(freed.values()):
            self._ended.add(_counts_of(before, freed))

    def _end_predecessors(self, worker: WorkerId) -> None:
        lost = [known for known in self._newest if known not in self._connected]
        for known in [known for known in lost if known.name == worker.name][:-_MAY_RETURN]:
            self._ended.add(self._newest.pop(known))

    def _remove_unused(self) -> None:
        """Removes the counts of models that no connected worker has or is to load.

        A worker that has just started does not have the revisions yet that were loaded while the
        service ran. It gets their deployments, so only these can tell that a model has gone.
        """
        connected = [self._newest[worker] for worker in self._connected]
        deployments = [each for snapshot in connected for each in snapshot.deployments]
        deployed = {deployment.name for deployment in deployments}
        used = {revision.model for each in deployments for revision in each.revisions}
        for snapshot in connected:
            used.update(report.model for report in snapshot.revisions)
            used.update(*_counted_models(snapshot).values())

        def is_unused(model: str) -> bool:
            return public_name(model) in deployed and model not in used

        self._ended.remove(is_unused)
        for worker in self._newest.keys() - self._connected:
            snapshot = self._newest[worker]
            kept = {
                name: {model for model in models if not is_unused(model)}
                for name, models in _counted_models(snapshot).items()
            }
            self._newest[worker] = _counts_of(snapshot, kept)

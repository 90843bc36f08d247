"""Metrics of graphs and lanes, from the snapshots of workers.

The router of `serve` shows the metrics of its local workers, and a single worker shows its own. The
counts of a snapshot are those of one process. They are summed over all processes so far, so that no
counter falls when a worker is replaced.
"""

import copy
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from shaperouter_service.routing.snapshots import (
    GraphReport,
    GraphState,
    Histogram,
    Snapshot,
    StartTimes,
    WorkerId,
    active_workers,
)

_START_PHASES = [field.name for field in fields(StartTimes)]

_SIGNATURE = ["model", "kind", "rows", "length", "beams"]

# Cold graphs are not counted: every other signature of the ladders is cold.
_STATES = [state for state in GraphState if state is not GraphState.COLD]


@dataclass
class _Counts:
    """A histogram's counts, summed over processes."""

    bounds: tuple[float, ...] = ()
    counts: list[int] = field(default_factory=list)
    sum: float = 0.0

    def add(self, histogram: "Histogram | _Counts") -> None:
        if not self.counts:
            self.bounds = tuple(histogram.bounds)
            self.counts = [0] * len(histogram.counts)
        self.counts = [a + b for a, b in zip(self.counts, histogram.counts, strict=True)]
        self.sum += histogram.sum

    @property
    def total(self) -> int:
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        accumulated = 0
        buckets = []
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            accumulated += count
            buckets.append((_label(bound), float(accumulated)))
        return buckets


@dataclass
class _GraphTotals:
    """The counts of one signature, summed over processes."""

    traces: int = 0
    compiles: int = 0
    loads: int = 0
    failures: int = 0
    compile_seconds: _Counts = field(default_factory=_Counts)
    stall_seconds: _Counts = field(default_factory=_Counts)

    def add(self, graph: GraphReport) -> None:
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


_Labels = tuple[str, ...]


@dataclass
class _Totals:
    """The counts of all processes, summed, by labels."""

    graphs: dict[_Labels, _GraphTotals] = field(default_factory=lambda: defaultdict(_GraphTotals))
    device_seconds: dict[_Labels, _Counts] = field(default_factory=lambda: defaultdict(_Counts))
    overhead_seconds: dict[_Labels, float] = field(default_factory=lambda: defaultdict(float))
    padding: dict[_Labels, int] = field(default_factory=lambda: defaultdict(int))
    padding_checks: dict[_Labels, int] = field(default_factory=lambda: defaultdict(int))
    proposed: dict[_Labels, int] = field(default_factory=lambda: defaultdict(int))
    accepted: dict[_Labels, int] = field(default_factory=lambda: defaultdict(int))
    prefix_hits: dict[_Labels, int] = field(default_factory=lambda: defaultdict(int))
    prefix_evictions: dict[_Labels, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, snapshot: Snapshot) -> None:
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


def _label(bound: float) -> str:
    return str(floatToGoString(bound))  # type: ignore[no-untyped-call]  # it has no types


class WorkerMetrics(Collector):
    """Collects the metrics of workers from their snapshots. Thread-safe."""

    def __init__(self, registry: CollectorRegistry, *, signature_histograms: bool = True) -> None:
        """Registers this collector.

        Args:
            registry: Where it is registered.
            signature_histograms: Whether each signature has its own histograms; else the graphs of
                a model and kind share them.
        """
        self._signature_histograms = signature_histograms
        self._lock = threading.Lock()
        # The newest snapshot of each process, and the counts of processes that were replaced.
        self._newest: dict[WorkerId, Snapshot] = {}
        self._ended = _Totals()
        self._connected: set[WorkerId] = set()
        registry.register(self)

    def observe(self, snapshot: Snapshot) -> None:
        """Takes a worker's newest snapshot."""
        with self._lock:
            worker = snapshot.worker_id
            if worker not in self._newest:
                self._end_predecessors(worker)
            self._newest[worker] = snapshot
            self._connected.add(worker)

    def _end_predecessors(self, worker: WorkerId) -> None:
        lost = [known for known in self._newest if known not in self._connected]
        for known in lost:
            if known.name == worker.name:
                self._ended.add(self._newest.pop(known))

    def lose(self, worker: WorkerId) -> None:
        """Removes a lost worker from the gauges; its counts stay in the counters."""
        with self._lock:
            self._connected.discard(worker)

    def describe(self) -> Iterable[Metric]:
        """Yields the metrics without values."""
        return _collect(_Totals(), {}, _of_signatures)

    def collect(self) -> Iterable[Metric]:
        """Yields the metrics."""
        with self._lock:
            totals = copy.deepcopy(self._ended)
            for snapshot in self._newest.values():
                totals.add(snapshot)
            connected = {
                worker: snapshot
                for worker, snapshot in self._newest.items()
                if worker in self._connected
            }
        labels = _of_signatures if self._signature_histograms else _of_kinds
        return _collect(totals, connected, labels)


def _of_signatures(labels: _Labels) -> _Labels:
    """Labels of a histogram for each signature."""
    return labels


def _of_kinds(labels: _Labels) -> _Labels:
    """Labels of a histogram for all signatures of a model and kind: no rows, length and beams."""
    model, kind, _, _, _, *others = labels
    return (model, kind, "", "", "", *others)


def _collect(
    totals: _Totals,
    connected: Mapping[WorkerId, Snapshot],
    histogram_labels: Callable[[_Labels], _Labels],
) -> Iterator[Metric]:
    yield from _graph_counters(totals.graphs)
    yield from _graph_histograms(totals, histogram_labels)
    yield from _counters(totals)
    yield from _gauges(connected.values())
    # A successor beside its worker has graphs and memory already, but serves no requests yet.
    yield _slots(connected[worker] for worker in active_workers(connected).values())


def _graph_counters(totals: dict[_Labels, _GraphTotals]) -> Iterator[Metric]:
    traces = CounterMetricFamily(
        "shaperouter_graph_traces", "Times that a graph was traced.", labels=_SIGNATURE
    )
    compiles = CounterMetricFamily(
        "shaperouter_graph_compiles",
        "Times that a graph was compiled, was loaded from the cache, or failed to compile or load.",
        labels=[*_SIGNATURE, "result"],
    )
    stalls = CounterMetricFamily(
        "shaperouter_stalls",
        "Requests that waited for a compilation, by the graph that they waited for.",
        labels=_SIGNATURE,
    )
    for labels, total in totals.items():
        traces.add_metric(labels, total.traces)
        compiles.add_metric([*labels, "compiled"], total.compiles)
        compiles.add_metric([*labels, "loaded"], total.loads)
        compiles.add_metric([*labels, "failed"], total.failures)
        stalls.add_metric(labels, total.stall_seconds.total)
    yield from (traces, compiles, stalls)


def _graph_histograms(
    totals: _Totals, histogram_labels: Callable[[_Labels], _Labels]
) -> Iterator[Metric]:
    """The histograms of graphs; those that get the same labels are added up."""
    histograms: list[tuple[str, str, list[str], Mapping[_Labels, _Counts]]] = [
        (
            "shaperouter_graph_compile_seconds",
            "Time that XLA took to compile a graph, in seconds; without tracing and loading.",
            _SIGNATURE,
            {labels: total.compile_seconds for labels, total in totals.graphs.items()},
        ),
        (
            "shaperouter_stall_seconds",
            "Time that requests waited for a compilation, in seconds.",
            _SIGNATURE,
            {labels: total.stall_seconds for labels, total in totals.graphs.items()},
        ),
        (
            "shaperouter_device_seconds",
            "Time that the device spent in calls of a graph, in seconds.",
            [*_SIGNATURE, "device"],
            totals.device_seconds,
        ),
    ]
    for name, help_text, names, found in histograms:
        shown: dict[_Labels, _Counts] = defaultdict(_Counts)
        for labels, counts in found.items():
            shown[histogram_labels(labels)].add(counts)
        family = HistogramMetricFamily(name, help_text, labels=names)
        for labels, counts in shown.items():
            family.add_metric(labels, counts.buckets(), counts.sum)
        yield family


def _counters(totals: _Totals) -> Iterator[Metric]:
    yield _counter(
        "padding_tokens",
        "Tokens computed and thrown away: padding of sources (encode), of prompts (prefill, or "
        "score if their log-probabilities are returned), of transcripts whose words are timed "
        "(align), and rows without a request (decode). For models that answer once, rows times "
        "sizes computed and thrown away (call).",
        totals.padding,
        "kind",
    )
    yield _counter(
        "call_overhead_seconds",
        "Time of calls of graphs beyond their device time, in seconds: giving the device its work "
        "and fetching the results. Only of devices that have a clock of their own.",
        totals.overhead_seconds,
        "kind",
    )
    yield _counter(
        "padding_checks",
        "Calls of functions, and parts of split ones, that were repeated without padding "
        "(--check-padding), by whether the answer was equal or different.",
        totals.padding_checks,
        "result",
    )
    yield _counter(
        "prefix_hit_tokens",
        "Tokens of prompts that were not read, because an earlier request began with them.",
        totals.prefix_hits,
    )
    yield _counter(
        "prefix_evictions",
        "Blocks of 16 tokens that were evicted from the prefix cache (--prefix-cache-memory).",
        totals.prefix_evictions,
    )
    yield _counter(
        "proposed_tokens",
        "Proposed tokens that decode steps have checked (--speculate, --draft).",
        totals.proposed,
        "source",
    )
    yield _counter(
        "accepted_tokens",
        "Proposed tokens that were accepted, so that they took no step of their own.",
        totals.accepted,
        "source",
    )


def _counter(name: str, help_text: str, totals: Mapping[_Labels, float], *labels: str) -> Metric:
    family = CounterMetricFamily(f"shaperouter_{name}", help_text, labels=["model", *labels])
    for values, count in totals.items():
        family.add_metric(values, count)
    return family


def _gauges(connected: Collection[Snapshot]) -> Iterator[Metric]:
    graphs = GaugeMetricFamily(
        "shaperouter_graphs", "Graphs by state, without cold ones.", labels=["state"]
    )
    for state in _STATES:
        found = sum(graph.state is state for worker in connected for graph in worker.graphs)
        graphs.add_metric([state.value], found)
    yield graphs

    limit = sum(worker.budget.max_graphs for worker in connected)
    yield GaugeMetricFamily(
        "shaperouter_graphs_limit",
        "Maximum number of graphs of all workers together (--max-graphs).",
        limit,
    )
    room = sum(worker.budget.room for worker in connected)
    yield GaugeMetricFamily(
        "shaperouter_graphs_room",
        "Graphs that workers may still compile within their budgets.",
        room,
    )

    depth = sum(worker.compile_queue_depth for worker in connected)
    yield GaugeMetricFamily(
        "shaperouter_compile_queue_depth", "Graphs that wait for a compile thread.", depth
    )

    yield _weights(connected)

    cache_bytes: dict[str, int] = defaultdict(int)
    for worker in connected:
        for model in worker.models:
            cache_bytes[model.name] += model.kv_cache_bytes
    caches = GaugeMetricFamily(
        "shaperouter_kv_cache_bytes", "Memory of the key/value caches, in bytes.", labels=["model"]
    )
    for model_name, size in cache_bytes.items():
        caches.add_metric([model_name], size)
    yield caches
    kept_bytes: dict[str, int] = defaultdict(int)
    for worker in connected:
        for kept in worker.prefixes:
            kept_bytes[kept.model] += kept.bytes
    prefixes = GaugeMetricFamily(
        "shaperouter_prefix_cache_bytes",
        "Memory of the keys and values that are kept for later requests, in bytes.",
        labels=["model"],
    )
    for model_name, size in kept_bytes.items():
        prefixes.add_metric([model_name], size)
    yield prefixes
    yield _startup(connected)


def _weights(connected: Collection[Snapshot]) -> Metric:
    sizes: dict[tuple[str, str, str], int] = defaultdict(int)
    for worker in connected:
        for model in worker.models:
            sizes[model.name, model.weight_dtype, model.kernels or "none"] += model.weight_bytes
    family = GaugeMetricFamily(
        "shaperouter_weight_bytes",
        "Memory of the weights, in bytes, by their data type and by the instruction set of the "
        "native kernels that multiply by them (none if XLA does).",
        labels=["model", "dtype", "kernels"],
    )
    for labels, size in sizes.items():
        family.add_metric(labels, size)
    return family


def _startup(connected: Collection[Snapshot]) -> Metric:
    family = GaugeMetricFamily(
        "shaperouter_startup_seconds",
        "Time of each phase of a worker's start, in seconds: loading its code (import), loading "
        "its weights (weights), compiling or loading the graphs that cover every request "
        "(first_cover), and all further graphs that it needs to be ready (warm).",
        labels=["worker", "phase"],
    )
    for worker in connected:
        for name in _START_PHASES:
            seconds = getattr(worker.start, name)
            if seconds is not None:
                family.add_metric([worker.worker, name.removesuffix("_seconds")], seconds)
    return family


def _slots(serving: Iterable[Snapshot]) -> Metric:
    slots: dict[tuple[str, str, str], int] = defaultdict(int)
    for worker in serving:
        for lane in worker.lanes:
            beams = str(lane.beams)
            slots[lane.model, beams, "active"] += lane.active_slots
            slots[lane.model, beams, "free"] += lane.total_slots - lane.active_slots
    family = GaugeMetricFamily(
        "shaperouter_slots",
        "Slots by the beam width of the requests that get them, and by state: active (a request "
        "has it) or free.",
        labels=["model", "beams", "state"],
    )
    for labels, count in slots.items():
        family.add_metric(labels, count)
    return family

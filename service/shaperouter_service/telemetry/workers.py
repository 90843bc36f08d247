"""Metrics of graphs and lanes, from the snapshots of workers.

The router of `serve` shows the metrics of its local workers, and a single worker shows its own. The
counters are sums over all processes so far; see `worker_counts`.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from shaperouter_service.routing.snapshots import (
    GraphState,
    Snapshot,
    StartTimes,
    WorkerId,
    active_workers,
)
from shaperouter_service.telemetry.worker_counts import (
    Counts,
    GraphTotals,
    Labels,
    Totals,
    WorkerCounts,
)

_START_PHASES = [field.name for field in fields(StartTimes)]

_SIGNATURE = ["model", "kind", "rows", "length", "beams"]

# Cold graphs are not counted: every other signature of the ladders is cold.
_STATES = [state for state in GraphState if state is not GraphState.COLD]


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
        self._counts = WorkerCounts()
        registry.register(self)

    def observe(self, snapshot: Snapshot) -> None:
        """Takes a worker's newest snapshot."""
        with self._lock:
            self._counts.observe(snapshot)

    def lose(self, worker: WorkerId) -> None:
        """Removes a lost worker from the gauges; its counts stay in the counters."""
        with self._lock:
            self._counts.lose(worker)

    def describe(self) -> Iterable[Metric]:
        """Yields the metrics without values."""
        return _collect(Totals(), {}, _of_signatures)

    def collect(self) -> Iterable[Metric]:
        """Yields the metrics."""
        with self._lock:
            totals, connected = self._counts.totals(), self._counts.connected()
        labels = _of_signatures if self._signature_histograms else _of_kinds
        return _collect(totals, connected, labels)


def _of_signatures(labels: Labels) -> Labels:
    """Labels of a histogram for each signature."""
    return labels


def _of_kinds(labels: Labels) -> Labels:
    """Labels of a histogram for all signatures of a model and kind: no rows, length and beams."""
    model, kind, _, _, _, *others = labels
    return (model, kind, "", "", "", *others)


def _collect(
    totals: Totals,
    connected: Mapping[WorkerId, Snapshot],
    histogram_labels: Callable[[Labels], Labels],
) -> Iterator[Metric]:
    yield from _graph_counters(totals.graphs)
    yield from _graph_histograms(totals, histogram_labels)
    yield from _counters(totals)
    yield from _gauges(connected.values())
    # A successor beside its worker has graphs and memory already, but serves no requests yet.
    yield _slots(connected[worker] for worker in active_workers(connected).values())


def _graph_counters(totals: dict[Labels, GraphTotals]) -> Iterator[Metric]:
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
    totals: Totals, histogram_labels: Callable[[Labels], Labels]
) -> Iterator[Metric]:
    """The histograms of graphs; those that get the same labels are added up."""
    histograms: list[tuple[str, str, list[str], Mapping[Labels, Counts]]] = [
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
        shown: dict[Labels, Counts] = defaultdict(Counts)
        for labels, counts in found.items():
            shown[histogram_labels(labels)].add(counts)
        family = HistogramMetricFamily(name, help_text, labels=names)
        for labels, counts in shown.items():
            family.add_metric(labels, counts.buckets(), counts.sum)
        yield family


def _counters(totals: Totals) -> Iterator[Metric]:
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


def _counter(name: str, help_text: str, totals: Mapping[Labels, float], *labels: str) -> Metric:
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

"""Metrics from the snapshots of workers."""

import dataclasses
from collections import Counter
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from harness.routing import LADDERS
from shaperouter_service.routing.deployments import (
    Deployment,
    Revision,
    RevisionReport,
    RevisionState,
)
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.snapshots import (
    BudgetReport,
    CallQueueReport,
    GraphReport,
    GraphState,
    Histogram,
    LaneReport,
    Snapshot,
    StartTimes,
    WorkerId,
)
from shaperouter_service.telemetry.workers import WorkerMetrics

PREFILL, DECODE = GraphKind.PREFILL, GraphKind.DECODE
SIGNATURE = {"model", "kind", "rows", "length", "beams"}

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def histogram(*counts: int, total: float = 0.0) -> Histogram:
    return Histogram(bounds=[0.1, 1], counts=counts or (0, 0, 0), sum=total)


def graph(length: int = 16, kind: GraphKind = PREFILL, **fields: Any) -> GraphReport:
    defaults: dict[str, Any] = {
        "signature": Signature(model="gpt2", kind=kind, rows=1, length=length, beams=1),
        "worker": "",
        "state": GraphState.READY,
        "traces": 1,
        "compiles": 1,
        "compile_seconds": histogram(0, 0, 1, total=2.5),
        "stall_seconds": histogram(1, 0, 2, total=5.0),
        "device_seconds": histogram(3, 2, 1, total=3.5),
    }
    return GraphReport(**(defaults | fields))


def snapshot(
    *graphs: GraphReport,
    worker: str = "worker-0",
    incarnation: str = "1",
    device: str = "CPU:0",
    kernels: str = "avx512",
    **fields: Any,
) -> Snapshot:
    lane = LaneReport(
        model="gpt2",
        beams=1,
        active_slots=3,
        total_slots=8,
        encode_padding_tokens=5,
        prefill_padding_tokens=10,
        decode_padding_tokens=20,
        proposed_tokens=9,
        accepted_tokens=7,
        draft_proposed_tokens=4,
        draft_accepted_tokens=3,
    )
    defaults: dict[str, Any] = {
        "models": [
            ServedModel(
                ladders=LADDERS,
                name="gpt2",
                kv_cache_bytes=1000,
                weight_bytes=500,
                weight_dtype="int8",
                kernels=kernels,
            )
        ],
        "lanes": [lane],
        "compile_queue_depth": 2,
    }
    return Snapshot(
        worker=worker,
        incarnation=incarnation,
        device=device,
        graphs=[dataclasses.replace(each, worker=worker) for each in graphs],
        **(defaults | fields),
    )


class Scraped:
    """Worker metrics, and what a scrape of them shows."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = WorkerMetrics(self.registry)

    def series(self) -> Series:
        """Every sample; two of the same name and labels fail."""
        found: Series = {}
        text = generate_latest(self.registry).decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in found, f"{sample} is there twice"
                found[key] = sample.value
        return found

    def value(self, name: str, **labels: str) -> float | None:
        """The sum of all series of a name that have these labels; None if there are none."""
        values = [
            value
            for (sample, its), value in self.series().items()
            if sample == name and labels.items() <= dict(its).items()
        ]
        return sum(values) if values else None


@pytest.fixture
def scraped() -> Scraped:
    return Scraped()


def test_one_series_for_each_signature(scraped: Scraped) -> None:
    scraped.metrics.observe(snapshot(graph(16), graph(24), graph(64, DECODE)))
    scraped.metrics.observe(snapshot(graph(16), graph(24), worker="worker-1"))
    traces = Counter(
        name for name, _ in scraped.series() if name == "shaperouter_graph_traces_total"
    )
    assert traces["shaperouter_graph_traces_total"] == 3


def test_histograms_of_a_kind_of_graph_can_share_their_series() -> None:
    registry = CollectorRegistry()
    metrics = WorkerMetrics(registry, signature_histograms=False)
    metrics.observe(snapshot(graph(16), graph(24), graph(64, DECODE)))
    metrics.observe(snapshot(graph(16), worker="worker-1"))
    shared = {"model": "gpt2", "rows": "", "length": "", "beams": ""}
    for name, each, device in (
        ("graph_compile", 2.5, {}),
        ("stall", 5.0, {}),
        ("device", 3.5, {"device": "CPU:0"}),
    ):
        for kind, graphs in (("prefill", 3), ("decode", 1)):
            labels = shared | device | {"kind": kind}
            total = registry.get_sample_value(f"shaperouter_{name}_seconds_sum", labels)
            assert total == graphs * each
    of_signature = {"model": "gpt2", "kind": "prefill", "rows": "1", "length": "16", "beams": "1"}
    # Counters stay apart.
    assert registry.get_sample_value("shaperouter_stalls_total", of_signature) == 2 * 3


def test_a_signature_on_several_kinds_of_device_is_one_series(scraped: Scraped) -> None:
    scraped.metrics.observe(snapshot(graph(), device="CPU:0"))
    scraped.metrics.observe(snapshot(graph(), device="GPU:0", worker="worker-1"))
    assert scraped.value("shaperouter_graph_traces_total", length="16") == 2


def test_device_seconds_are_apart_by_device(scraped: Scraped) -> None:
    scraped.metrics.observe(snapshot(graph(), device="CPU:0"))
    scraped.metrics.observe(
        snapshot(
            graph(device_seconds=histogram(0, 1, 0, total=0.5)), device="GPU:0", worker="worker-1"
        )
    )
    sums = {
        device: scraped.registry.get_sample_value(
            "shaperouter_device_seconds_sum",
            {
                "model": "gpt2",
                "kind": "prefill",
                "rows": "1",
                "length": "16",
                "beams": "1",
                "device": device,
            },
        )
        for device in ("CPU:0", "GPU:0")
    }
    assert sums == {"CPU:0": 3.5, "GPU:0": 0.5}


def test_only_devices_with_a_clock_have_an_overhead(scraped: Scraped) -> None:
    scraped.metrics.observe(snapshot(graph(overhead_seconds=None), device="CPU:0"))
    name, labels = "shaperouter_call_overhead_seconds_total", {"model": "gpt2", "kind": "prefill"}
    assert scraped.registry.get_sample_value(name, labels) is None
    for worker in ("worker-1", "worker-2"):
        measured = graph(overhead_seconds=0.25)
        scraped.metrics.observe(snapshot(measured, device="GPU:0", worker=worker))
    assert scraped.registry.get_sample_value(name, labels) == 0.5


def test_counts_of_workers_add_up(scraped: Scraped) -> None:
    scraped.metrics.observe(snapshot(graph(traces=1)))
    scraped.metrics.observe(snapshot(graph(traces=2), worker="worker-1"))
    assert scraped.value("shaperouter_graph_traces_total") == 3


def test_snapshots_of_one_process_replace_each_other(scraped: Scraped) -> None:
    scraped.metrics.observe(snapshot(graph(stall_seconds=histogram(1, 0, 0))))
    scraped.metrics.observe(snapshot(graph(stall_seconds=histogram(1, 0, 1))))
    assert scraped.value("shaperouter_stalls_total") == 2


def test_counts_of_a_restarted_worker_are_added(scraped: Scraped) -> None:
    scraped.metrics.observe(snapshot(graph(traces=1)))
    scraped.metrics.lose(WorkerId("worker-0", "1"))
    scraped.metrics.observe(snapshot(graph(traces=1), incarnation="2"))
    assert scraped.value("shaperouter_graph_traces_total") == 2


def test_counts_of_a_worker_and_the_successor_beside_it_add_up(scraped: Scraped) -> None:
    for _ in range(3):
        scraped.metrics.observe(snapshot(graph(traces=2)))
        scraped.metrics.observe(snapshot(graph(traces=1), incarnation="2"))
    scraped.metrics.lose(WorkerId("worker-0", "1"))
    assert scraped.value("shaperouter_graph_traces_total") == 3


def test_a_successor_beside_a_worker_has_graphs_but_no_slots_yet(scraped: Scraped) -> None:
    scraped.metrics.observe(snapshot(graph(16), graph(24)))
    scraped.metrics.observe(snapshot(graph(16), incarnation="2", warm=True))
    for _ in range(2):
        assert scraped.value("shaperouter_slots") == 8
        scraped.metrics.lose(WorkerId("worker-0", "1"))
    assert scraped.value("shaperouter_graphs", state="ready") == 1


def test_counts_of_a_graph_stay_when_it_is_refused_after_a_failure(scraped: Scraped) -> None:
    failed = {"compiles": 0, "failures": 1}
    scraped.metrics.observe(snapshot(graph(16, state=GraphState.FAILED, **failed)))
    before = scraped.value("shaperouter_stalls_total")
    scraped.metrics.observe(snapshot(graph(16, state=GraphState.COLD, **failed)))
    assert scraped.value("shaperouter_stalls_total") == before == 3


def test_no_counter_falls_when_a_worker_is_replaced(scraped: Scraped) -> None:
    scraped.metrics.observe(snapshot(graph(16), graph(64, DECODE)))
    before = scraped.series()
    scraped.metrics.lose(WorkerId("worker-0", "1"))
    lost = scraped.series()
    # The new process starts at zero, and nobody has asked it for the second graph yet.
    fresh = graph(
        traces=0,
        compiles=0,
        compile_seconds=histogram(),
        stall_seconds=histogram(),
        device_seconds=histogram(),
        state=GraphState.TRACING,
    )
    scraped.metrics.observe(snapshot(fresh, incarnation="2", lanes=[]))
    replaced = scraped.series()

    ends = ("_total", "_bucket", "_count", "_sum")
    counters = [key for key in before if key[0].endswith(ends)]
    assert counters
    assert [key for key in counters if lost.get(key, 0) < before[key]] == []
    assert [key for key in counters if replaced.get(key, 0) < before[key]] == []


def test_counts_of_a_silent_worker_that_returns_after_its_successor_has_reported_are_not_doubled(
    scraped: Scraped,
) -> None:
    scraped.metrics.observe(snapshot(graph(traces=3)))
    scraped.metrics.lose(WorkerId("worker-0", "1"))
    successor = snapshot(graph(traces=0), incarnation="2")
    scraped.metrics.observe(successor)
    assert scraped.value("shaperouter_graph_traces_total") == 3
    scraped.metrics.observe(snapshot(graph(traces=4)))
    assert scraped.value("shaperouter_graph_traces_total") == 4
    scraped.metrics.lose(WorkerId("worker-0", "1"))
    scraped.metrics.observe(successor)
    assert scraped.value("shaperouter_graph_traces_total") == 4


def test_counts_of_all_processes_of_a_worker_that_dies_again_and_again_add_up(
    scraped: Scraped,
) -> None:
    for incarnation in map(str, range(10)):
        scraped.metrics.observe(snapshot(graph(traces=1), incarnation=incarnation))
        scraped.metrics.lose(WorkerId("worker-0", incarnation))
    assert scraped.value("shaperouter_graph_traces_total") == 10


def deploy(version: int, *models: str) -> list[Deployment]:
    """What workers report once routers have told them that these revisions of gpt2 serve."""
    revisions = [Revision(model=model, digest="") for model in models]
    return [Deployment(name="gpt2", version=version, revisions=revisions)]


def of_revision(model: str, **counts: Any) -> GraphReport:
    signature = Signature(model=model, kind=PREFILL, rows=1, length=16, beams=1)
    return graph(signature=signature, **counts)


OLD, NEW = "gpt2@000000000000", "gpt2@111111111111"


def test_a_counter_does_not_fall_while_one_of_the_workers_has_the_model(scraped: Scraped) -> None:
    both, new = deploy(1, OLD, NEW), deploy(2, NEW)
    for worker in ("worker-0", "worker-1"):
        old = of_revision(OLD, traces=2)
        scraped.metrics.observe(snapshot(old, worker=worker, lanes=[], deployments=both))
    scraped.metrics.observe(snapshot(lanes=[], deployments=new))
    assert scraped.value("shaperouter_graph_traces_total", model=OLD) == 4
    scraped.metrics.observe(snapshot(worker="worker-1", lanes=[], deployments=new))
    assert scraped.value("shaperouter_graph_traces_total", model=OLD) is None


def test_the_series_of_a_freed_revision_end_although_a_worker_was_replaced(
    scraped: Scraped,
) -> None:
    old = deploy(1, OLD)
    scraped.metrics.observe(snapshot(of_revision(OLD, traces=3), lanes=[], deployments=old))
    scraped.metrics.lose(WorkerId("worker-0", "1"))
    present = snapshot(
        of_revision(OLD, traces=2), incarnation="2", lanes=[], deployments=deploy(2, OLD, NEW)
    )
    scraped.metrics.observe(present)
    assert scraped.value("shaperouter_graph_traces_total", model=OLD) == 5
    freed = snapshot(
        of_revision(NEW, traces=1), incarnation="2", lanes=[], deployments=deploy(3, NEW)
    )
    scraped.metrics.observe(freed)
    assert {dict(labels).get("model") for _, labels in scraped.series()} & {OLD, NEW} == {NEW}
    # Loaded again, it counts from zero.
    again = of_revision(OLD, traces=1), of_revision(NEW, traces=1)
    scraped.metrics.observe(
        snapshot(*again, incarnation="2", lanes=[], deployments=deploy(4, OLD, NEW))
    )
    assert scraped.value("shaperouter_graph_traces_total", model=OLD) == 1


@pytest.mark.parametrize("told", [False, True], ids=["before its orders", "while it loads"])
def test_counts_of_a_revision_stay_while_a_restarted_worker_does_not_have_it_yet(
    scraped: Scraped, told: bool
) -> None:
    """It may be held for a request, in no deployment any more."""
    old = deploy(1, OLD)
    scraped.metrics.observe(snapshot(of_revision(OLD, traces=3), lanes=[], deployments=old))
    scraped.metrics.lose(WorkerId("worker-0", "1"))
    loading = RevisionReport(model=OLD, state=RevisionState.LOADING)
    orders: dict[str, Any] = {"deployments": deploy(2, NEW), "revisions": [loading]}
    scraped.metrics.observe(snapshot(incarnation="2", lanes=[], **(orders if told else {})))
    assert scraped.value("shaperouter_graph_traces_total", model=OLD) == 3


def test_a_lost_worker_is_removed_from_the_gauges(scraped: Scraped) -> None:
    scraped.metrics.observe(snapshot(graph()))
    scraped.metrics.observe(snapshot(graph(), worker="worker-1"))
    scraped.metrics.lose(WorkerId("worker-0", "1"))
    assert scraped.value("shaperouter_slots", state="active") == 3
    assert scraped.value("shaperouter_kv_cache_bytes", model="gpt2") == 1000
    assert scraped.value("shaperouter_graphs", state="ready") == 1
    assert scraped.value("shaperouter_compile_queue_depth") == 2


def test_without_workers_there_are_no_slots_and_no_graphs(scraped: Scraped) -> None:
    scraped.metrics.observe(snapshot(graph()))
    scraped.metrics.lose(WorkerId("worker-0", "1"))
    assert not scraped.value("shaperouter_slots")
    assert not scraped.value("shaperouter_kv_cache_bytes")
    assert not scraped.value("shaperouter_graphs")
    assert not scraped.value("shaperouter_compile_queue_depth")


def test_slots_are_active_or_free(scraped: Scraped) -> None:
    scraped.metrics.observe(snapshot())
    assert scraped.value("shaperouter_slots", model="gpt2", state="active") == 3
    assert scraped.value("shaperouter_slots", model="gpt2", state="free") == 5


def test_graphs_are_counted_by_state(scraped: Scraped) -> None:
    scraped.metrics.observe(
        snapshot(
            graph(16, state=GraphState.TRACING),
            graph(24, state=GraphState.COMPILING),
            graph(32, state=GraphState.READY),
            graph(40, state=GraphState.READY),
            graph(64, state=GraphState.FAILED),
        )
    )
    states = ("tracing", "compiling", "ready", "failed")
    counts = {state: scraped.value("shaperouter_graphs", state=state) for state in states}
    assert counts == {"tracing": 1, "compiling": 1, "ready": 2, "failed": 1}


def test_compilations_are_counted_by_result(scraped: Scraped) -> None:
    scraped.metrics.observe(
        snapshot(graph(16), graph(24, compiles=0, failures=1), graph(32, compiles=0, loads=1))
    )
    name = "shaperouter_graph_compiles_total"
    assert scraped.value(name, length="16", result="compiled") == 1
    assert scraped.value(name, length="16", result="failed") == 0
    assert scraped.value(name, length="24", result="compiled") == 0
    assert scraped.value(name, length="24", result="failed") == 1
    assert scraped.value(name, length="32", result="compiled") == 0
    assert scraped.value(name, length="32", result="loaded") == 1


def test_padding_is_counted_by_kind(scraped: Scraped) -> None:
    scraped.metrics.observe(snapshot())
    assert scraped.value("shaperouter_padding_tokens_total", kind="encode") == 5
    assert scraped.value("shaperouter_padding_tokens_total", kind="prefill") == 10
    assert scraped.value("shaperouter_padding_tokens_total", kind="decode") == 20


def test_proposals_are_counted_by_model(scraped: Scraped) -> None:
    scraped.metrics.observe(snapshot())
    for source, proposed, accepted in (("ngram", 5, 4), ("draft", 4, 3)):
        labels = {"model": "gpt2", "source": source}
        assert scraped.value("shaperouter_proposed_tokens_total", **labels) == proposed
        assert scraped.value("shaperouter_accepted_tokens_total", **labels) == accepted


def test_padding_checks_are_counted_by_their_result(scraped: Scraped) -> None:
    queue = CallQueueReport(model="f", padding_checks=5, padding_differences=1)
    scraped.metrics.observe(snapshot(call_queues=[queue]))
    name = "shaperouter_padding_checks_total"
    assert scraped.value(name, model="f", result="equal") == 4
    assert scraped.value(name, model="f", result="different") == 1


def test_padding_checks_of_a_replaced_worker_are_kept(scraped: Scraped) -> None:
    queue = CallQueueReport(model="f", padding_checks=5, padding_differences=1)
    scraped.metrics.observe(snapshot(call_queues=[queue]))
    scraped.metrics.lose(WorkerId("worker-0", "1"))
    fresh = CallQueueReport(model="f")
    scraped.metrics.observe(snapshot(incarnation="2", call_queues=[fresh]))
    assert scraped.value("shaperouter_padding_checks_total", result="different") == 1


def test_stalls_are_as_many_as_their_durations(scraped: Scraped) -> None:
    scraped.metrics.observe(snapshot(graph(stall_seconds=histogram(1, 0, 2, total=5.0))))
    assert scraped.value("shaperouter_stalls_total") == 3
    assert scraped.value("shaperouter_stall_seconds_count") == 3
    assert scraped.value("shaperouter_stall_seconds_sum") == 5


@pytest.mark.parametrize(
    ("name", "buckets"),
    [
        ("shaperouter_device_seconds", {"0.1": 3, "1.0": 5, "+Inf": 6}),
        ("shaperouter_stall_seconds", {"0.1": 1, "1.0": 1, "+Inf": 3}),
        ("shaperouter_graph_compile_seconds", {"0.1": 0, "1.0": 0, "+Inf": 1}),
    ],
)
def test_buckets_accumulate_up_to_the_count(
    scraped: Scraped, name: str, buckets: dict[str, float]
) -> None:
    scraped.metrics.observe(snapshot(graph()))
    found = {bound: scraped.value(f"{name}_bucket", le=bound) for bound in buckets}
    assert found == buckets
    assert scraped.value(f"{name}_count") == buckets["+Inf"]


def test_metrics_and_labels_are_those_of_the_design(scraped: Scraped) -> None:
    start = StartTimes(import_seconds=3.5)
    queue = CallQueueReport(model="f")
    scraped.metrics.observe(
        snapshot(graph(16), graph(64, DECODE), start=start, call_queues=[queue])
    )
    labels = {
        name: {label for label, _ in its} - {"le"}
        for name, its in scraped.series()
        if not name.endswith(("_bucket", "_count"))
    }
    prefix = "shaperouter_"
    assert {name.removeprefix(prefix): found for name, found in labels.items()} == {
        "graph_traces_total": SIGNATURE,
        "graph_compiles_total": SIGNATURE | {"result"},
        "graph_compile_seconds_sum": SIGNATURE,
        "stalls_total": SIGNATURE,
        "stall_seconds_sum": SIGNATURE,
        "device_seconds_sum": SIGNATURE | {"device"},
        "padding_tokens_total": {"model", "kind"},
        "padding_checks_total": {"model", "result"},
        "proposed_tokens_total": {"model", "source"},
        "accepted_tokens_total": {"model", "source"},
        "graphs": {"state"},
        "graphs_limit": set(),
        "graphs_room": set(),
        "startup_seconds": {"worker", "phase"},
        "compile_queue_depth": set(),
        "slots": {"model", "beams", "state"},
        "kv_cache_bytes": {"model"},
        "weight_bytes": {"model", "dtype", "kernels"},
    }


def test_weights_are_labelled_by_data_type_and_kernels(scraped: Scraped) -> None:
    scraped.metrics.observe(snapshot(worker="worker-0"))
    scraped.metrics.observe(snapshot(worker="worker-1", kernels=""))
    name, labels = "shaperouter_weight_bytes", {"model": "gpt2", "dtype": "int8"}
    assert scraped.value(name, **labels, kernels="avx512") == 500
    assert scraped.value(name, **labels, kernels="none") == 500


def test_the_startup_phases_that_have_ended_are_shown(scraped: Scraped) -> None:
    start = StartTimes(import_seconds=3.5, weights_seconds=0.25)
    scraped.metrics.observe(snapshot(start=start))
    name = "shaperouter_startup_seconds"
    assert scraped.value(name, worker="worker-0", phase="import") == 3.5
    assert scraped.value(name, worker="worker-0", phase="weights") == 0.25
    assert len([labels for found, labels in scraped.series() if found == name]) == 2


def test_room_and_limit_are_summed_over_workers(scraped: Scraped) -> None:
    for worker in ("worker-0", "worker-1"):
        budget = BudgetReport(room=3, max_graphs=10)
        scraped.metrics.observe(snapshot(worker=worker, budget=budget))
    assert scraped.value("shaperouter_graphs_limit") == 20
    assert scraped.value("shaperouter_graphs_room") == 6


def test_label_values_are_those_of_the_signature(scraped: Scraped) -> None:
    scraped.metrics.observe(snapshot(graph(64, DECODE)))
    (labels,) = (
        dict(its) for name, its in scraped.series() if name == "shaperouter_graph_traces_total"
    )
    assert labels == {"model": "gpt2", "kind": "decode", "rows": "1", "length": "64", "beams": "1"}


def test_a_scrape_before_any_worker_works(scraped: Scraped) -> None:
    assert scraped.value("shaperouter_compile_queue_depth") == 0

"""Metrics from the snapshots of workers."""

from __future__ import annotations

from collections import Counter

import pytest
from prometheus_client import CollectorRegistry

from harness.worker_metrics import DECODE, SIGNATURE, Scraped, graph, histogram, snapshot
from shaperouter_service.routing.snapshots import (
    BudgetReport,
    CallQueueReport,
    GraphState,
    StartTimes,
    WorkerId,
)
from shaperouter_service.telemetry.workers import WorkerMetrics


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

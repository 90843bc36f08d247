"""Metrics of workers that are replaced: no count falls, and none is doubled."""

from __future__ import annotations

from typing import Any

import pytest

from harness.worker_metrics import DECODE, PREFILL, Scraped, graph, histogram, snapshot
from shaperouter_service.routing.deployments import (
    Deployment,
    Revision,
    RevisionReport,
    RevisionState,
)
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import (
    GraphReport,
    GraphState,
    WorkerId,
)


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

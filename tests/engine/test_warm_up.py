"""The progress of a worker's warm-up is in the log and in its snapshots."""

from types import SimpleNamespace
from typing import Any

import pytest

from harness.engine import GOLDENS, TIMEOUT, Bench
from harness.waiting import wait_until
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.snapshots import GraphState
from shaperouter_service.worker import warm_up

MODEL = "gpt2-untied"
DECLARED = Signature(model=MODEL, kind=GraphKind.PREFILL, rows=1, length=16, beams=1)


def test_the_warm_up_reports_its_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: list[dict[str, Any]] = []

    def info(event: str, **fields: Any) -> None:
        # Engines of other tests may still make graphs: they have others to begin with.
        if fields["graphs"] == 3:
            lines.append(fields | {"event": event})

    monkeypatch.setattr(warm_up, "LOG_INTERVAL", 0.0)
    monkeypatch.setattr(warm_up, "log", SimpleNamespace(info=info))
    # Without a cache, so that it takes longer than this takes to look at it.
    bench = Bench({MODEL: GOLDENS / MODEL}, compile_threads=1, warm=[DECLARED])
    begun = bench.engine.snapshot("w", "i")
    wait_until(lambda: "worker ready" in [line["event"] for line in lines], timeout=TIMEOUT)
    *told, ready = lines
    assert {line["event"] for line in told} == {
        "graphs compiled or loaded before the worker is ready"
    }
    assert [line["done"] for line in told] == [1, 2]
    assert all(line["left_seconds"] >= 0 for line in told)
    assert ready["event"] == "worker ready"

    first = [graph for graph in begun.graphs if graph.before_ready]
    assert len(first) == 3
    assert DECLARED in [graph.signature for graph in first]
    # The last to be made was still on its way when the engine had begun.
    assert max(graph.left_seconds for graph in first) > 0
    ended = bench.engine.snapshot("w", "i")
    assert ended.warm
    assert {graph.state for graph in ended.graphs} == {GraphState.READY}
    assert not any(graph.left_seconds for graph in ended.graphs)


def test_a_graph_requested_later_is_not_part_of_the_warm_up(
    kept_compilations: CompileCache,
) -> None:
    bench = Bench({MODEL: GOLDENS / MODEL}, compile_cache=kept_compilations)
    bench.engine.request_compile([DECLARED])
    wait_until(lambda: bench.engine.warm, timeout=TIMEOUT)
    asked = {
        graph.signature: graph.before_ready for graph in bench.engine.snapshot("w", "i").graphs
    }
    assert not asked[DECLARED]
    assert sum(asked.values()) == 2

"""The catalog: what a router knows of its workers."""

import dataclasses
from typing import Any
from unittest import mock

import pytest

from harness.routing import LADDERS, SOURCE_LADDERS
from shaperouter_service.errors import InvalidRequestError, UnknownModelError
from shaperouter_service.routing import catalog as catalog_module
from shaperouter_service.routing.catalog import Catalog, view_of
from shaperouter_service.routing.decision import RequestShape
from shaperouter_service.routing.deployments import Deployment, RevisionReport, RevisionState
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.snapshots import (
    GraphReport,
    GraphState,
    LaneReport,
    Snapshot,
    WorkerId,
)


def snapshot(
    worker: str, *models: str, lengths: tuple[int, ...] = (), slots: int = 8, **fields: Any
) -> Snapshot:
    known = Snapshot(
        worker=worker,
        incarnation="1",
        device="CPU:0",
        warm=True,
        models=[ServedModel(name=name, slots=slots, ladders=LADDERS) for name in models],
        graphs=[graph(worker, models[0], length) for length in lengths],
    )
    return dataclasses.replace(known, **fields)


def graph(worker: str, model: str, length: int, **fields: Any) -> GraphReport:
    signature = Signature(model=model, kind=GraphKind.PREFILL, rows=1, length=length, beams=1)
    known = GraphReport(worker=worker, state=GraphState.READY, signature=signature)
    return dataclasses.replace(known, **fields)


def test_no_model_is_known_before_a_worker_is() -> None:
    assert Catalog(["gpt2"]).model("gpt2") is None


def test_a_snapshot_makes_its_models_known() -> None:
    catalog = Catalog(["gpt2"])
    catalog.update(snapshot("worker-0", "gpt2", slots=5))
    model = catalog.model("gpt2")
    assert model is not None
    assert model.slots == 5


def test_deployments_that_a_worker_reports_again_are_not_merged_again() -> None:
    catalog = Catalog(["gpt2"])
    first, second = ((Deployment(name="gpt2", version=version),) for version in (1, 2))
    with mock.patch.object(catalog.revisions, "tell", wraps=catalog.revisions.tell) as tell:
        for worker, deployments in (("a", first), ("a", first), ("b", first), ("a", second)):
            catalog.update(snapshot(worker, "gpt2", deployments=deployments))
    assert [call.args for call in tell.call_args_list] == [(first,), (first,), (second,)]
    assert catalog.revisions.pending() == list(second)


def test_a_worker_that_could_not_load_a_revision_does_not_use_it() -> None:
    catalog = Catalog(["gpt2"])
    for worker, state, idle in (("a", RevisionState.READY, 99.0), ("b", RevisionState.FAILED, 0.0)):
        report = RevisionReport(model="gpt2@1", state=state, idle_seconds=idle)
        catalog.update(snapshot(worker, "gpt2", revisions=[report]))
    assert catalog.idle_seconds("gpt2@1") == 99


def test_a_request_may_be_on_its_way_to_a_worker_that_frees_its_model() -> None:
    catalog = Catalog(["gpt2", "demo"])
    lane = LaneReport(model="gpt2", beams=1, total_slots=4)
    first = snapshot("a", "gpt2", "demo", lanes=[lane])
    catalog.update(first)
    shape = RequestShape(model="gpt2", prompt_tokens=5, new_tokens=5, num_beams=1)
    catalog.assign(first.worker_id, shape, beams=1)
    catalog.update(snapshot("a", "demo"))
    assert "gpt2" not in catalog.views()[first.worker_id].ladders


def test_ready_workers_are_the_warm_ones_that_have_the_model() -> None:
    catalog = Catalog(["gpt2", "demo"])
    catalog.update(snapshot("worker-0", "gpt2"))
    catalog.update(snapshot("worker-1", "gpt2", "demo"))
    ready = {name: catalog.model(name) for name in ("gpt2", "demo")}
    assert {name: model and model.ready_workers for name, model in ready.items()} == {
        "gpt2": 2,
        "demo": 1,
    }


def test_a_worker_that_still_makes_its_first_graphs_is_connected_and_not_ready() -> None:
    catalog = Catalog(["gpt2"])
    warm, cold = snapshot("worker-0", "gpt2"), snapshot("worker-1", "gpt2", warm=False)
    ready = []
    for told in (cold, warm):
        catalog.update(told)
        model = catalog.model("gpt2")
        assert model is not None
        ready.append((model.ready_workers, catalog.ready))
    assert ready == [(0, False), (1, True)]
    assert len(catalog.workers("gpt2")) == 2


def test_a_model_outlives_its_last_worker() -> None:
    catalog = Catalog(["gpt2"])
    catalog.update(snapshot("worker-0", "gpt2", slots=5))
    catalog.lose(WorkerId("worker-0", "1"))
    model = catalog.model("gpt2")
    assert model is not None
    assert (model.slots, model.ready_workers) == (5, 0)


@pytest.mark.parametrize("last", ["long", "short"])
def test_a_model_has_the_largest_limit_of_its_workers(last: str) -> None:
    catalog = Catalog(["gpt2"])
    limits = {"long": 2048, "short": 1024}
    for worker in sorted(limits, key=lambda worker: worker == last):
        model = ServedModel(name="gpt2", max_length=limits[worker], ladders=LADDERS)
        catalog.update(snapshot(worker, models=[model]))
    described = catalog.model("gpt2")
    assert described is not None
    assert (described.max_length, described.ready_workers) == (2048, 2)


def test_the_newest_snapshot_of_a_worker_counts() -> None:
    catalog = Catalog(["gpt2"])
    catalog.update(snapshot("worker-0", "gpt2", lengths=(16,)))
    catalog.update(snapshot("worker-0", "gpt2", lengths=(16, 24)))
    assert [each.signature.length for each in catalog.graphs()] == [16, 24]


def test_graphs_are_those_of_all_connected_workers() -> None:
    catalog = Catalog(["gpt2"])
    catalog.update(snapshot("worker-0", "gpt2", lengths=(16,)))
    catalog.update(snapshot("worker-1", "gpt2", lengths=(16,)))
    assert sorted(each.worker for each in catalog.graphs()) == ["worker-0", "worker-1"]


def test_a_lost_worker_has_no_graphs() -> None:
    catalog = Catalog(["gpt2"])
    catalog.update(snapshot("worker-0", "gpt2", lengths=(16,)))
    catalog.update(snapshot("worker-1", "gpt2", lengths=(24,)))
    catalog.lose(WorkerId("worker-0", "1"))
    assert [each.worker for each in catalog.graphs()] == ["worker-1"]


def test_losing_a_worker_that_never_was_changes_nothing() -> None:
    catalog = Catalog(["gpt2"])
    catalog.update(snapshot("worker-0", "gpt2"))
    catalog.lose(WorkerId("worker-7", "1"))
    assert catalog.workers("gpt2") == [WorkerId("worker-0", "1")]


def test_a_workers_successor_may_live_beside_it() -> None:
    catalog = Catalog(["gpt2"])
    first, second = snapshot("worker-0", "gpt2"), snapshot("worker-0", "gpt2", incarnation="2")
    catalog.update(first)
    catalog.update(second)
    catalog.lose(first.worker_id)
    assert catalog.workers("gpt2") == [WorkerId("worker-0", "2")]


def test_requests_stay_with_a_worker_until_it_leaves_them_to_its_successor() -> None:
    catalog = Catalog(["gpt2"])
    first, second = snapshot("worker-0", "gpt2"), snapshot("worker-0", "gpt2", incarnation="2")
    catalog.update(first)
    catalog.update(second)
    assert list(catalog.views()) == [first.worker_id]
    catalog.lose(first.worker_id)
    assert list(catalog.views()) == [second.worker_id]


def test_of_two_lives_of_a_worker_requests_go_to_the_warm_one() -> None:
    catalog = Catalog(["gpt2"])
    first = snapshot("worker-0", "gpt2", warm=False)
    second = snapshot("worker-0", "gpt2", incarnation="2")
    catalog.update(first)
    catalog.update(second)
    assert list(catalog.views()) == [second.worker_id]


def test_a_successor_beside_a_worker_is_neither_listed_nor_counted() -> None:
    catalog = Catalog(["gpt2"])
    first = snapshot("worker-0", "gpt2", lengths=(16, 24))
    second = snapshot("worker-0", "gpt2", lengths=(16,), incarnation="2")
    catalog.update(first)
    catalog.update(second)
    model = catalog.model("gpt2")
    assert model is not None
    assert model.ready_workers == 1
    assert catalog.graphs() == list(first.graphs)


def test_a_request_counts_as_load_until_snapshots_must_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = Catalog(["gpt2"])
    idle = snapshot("worker-0", "gpt2", lanes=[LaneReport(model="gpt2", beams=1, total_slots=1)])
    catalog.update(idle)
    shape = RequestShape(model="gpt2", prompt_tokens=10, new_tokens=20, num_beams=1)
    worker = idle.worker_id
    for _ in range(2):
        catalog.assign(worker, shape, beams=1)
    load = LaneReport(
        model="gpt2",
        beams=1,
        active_slots=1,
        total_slots=1,
        queued=1,
        backlog_tokens=40,
        backlog_prompts=2,
        backlog_prompt_tokens=20,
    )
    assert catalog.views()[worker].lanes["gpt2", 1] == load
    # This one may have been made before the requests came.
    monkeypatch.setattr(catalog_module, "ON_THE_WAY", 60.0)
    catalog.update(idle)
    assert catalog.views()[worker].lanes["gpt2", 1] == load
    monkeypatch.setattr(catalog_module, "ON_THE_WAY", 0.0)
    catalog.update(idle)
    assert catalog.views()[worker].lanes["gpt2", 1].backlog_tokens == 0


def test_of_a_request_with_a_source_what_is_read_of_it_counts_as_load() -> None:
    catalog = Catalog(["t5"])
    idle = snapshot(
        "worker-0",
        models=[ServedModel(name="t5", ladders=SOURCE_LADDERS)],
        lanes=[LaneReport(model="t5", beams=1, total_slots=2)],
    )
    catalog.update(idle)
    for prompt_tokens in (1, 5):
        shape = RequestShape(
            model="t5", prompt_tokens=prompt_tokens, new_tokens=20, num_beams=1, source_tokens=30
        )
        catalog.assign(idle.worker_id, shape, beams=1)
    # The first step reads the last token of a prompt.
    assert catalog.views()[idle.worker_id].lanes["t5", 1] == LaneReport(
        model="t5",
        beams=1,
        active_slots=2,
        total_slots=2,
        backlog_tokens=40,
        backlog_prompts=1,
        backlog_prompt_tokens=4,
        backlog_sources=2,
        backlog_source_tokens=60,
    )


def test_a_request_that_has_arrived_is_not_counted_besides_its_workers_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog_module, "ON_THE_WAY", 60.0)
    catalog = Catalog(["gpt2"])
    idle = snapshot("worker-0", "gpt2", lanes=[LaneReport(model="gpt2", beams=1, total_slots=1)])
    catalog.update(idle)
    shape = RequestShape(model="gpt2", prompt_tokens=10, new_tokens=20, num_beams=1)
    catalog.arrived(catalog.assign(idle.worker_id, shape, beams=1))
    catalog.update(idle)
    assert catalog.views()[idle.worker_id].lanes["gpt2", 1].active_slots == 0


def test_a_model_is_not_ready_on_a_worker_that_still_makes_its_first_graphs() -> None:
    catalog = Catalog(["gpt2"])
    catalog.update(snapshot("worker-0", "gpt2", warm=False))
    assert not catalog.ready


def test_a_graph_on_the_way_is_expected_from_what_others_took() -> None:
    graphs = [
        graph("worker-0", "gpt2", 16, make_seconds=4.0),
        graph("worker-0", "gpt2", 24, state=GraphState.COMPILING, state_seconds=1.5),
        graph("worker-0", "gpt2", 32, state=GraphState.COMPILING, state_seconds=60.0),
    ]
    views = view_of(snapshot("worker-0", "gpt2", graphs=graphs), now=100.0).graphs
    assert sorted(view.ready_at for view in views.values()) == [0.0, 100.4, 102.5]


def test_a_graph_is_expected_when_its_worker_expects_it_and_another_one_behind_it() -> None:
    needs = 40.0
    graphs = [
        graph("worker-0", "gpt2", 16, make_seconds=needs),
        graph("worker-0", "gpt2", 24, state=GraphState.COMPILING, left_seconds=0.2),
        graph("worker-0", "gpt2", 32, state=GraphState.QUEUED, left_seconds=0.5),
    ]
    view = view_of(snapshot("worker-0", "gpt2", graphs=graphs), now=100.0)
    assert sorted(each.ready_at for each in view.graphs.values()) == [0.0, 100.2, 100.5]
    cold = dataclasses.replace(graphs[0].signature, length=64)
    assert view.ready_at(cold, 100.0) == pytest.approx(100.5 + needs, rel=0.1)


def test_the_only_model_need_not_be_named() -> None:
    assert Catalog(["gpt2"]).resolve("") == "gpt2"


def test_a_model_is_resolved_before_a_worker_has_it() -> None:
    assert Catalog(["gpt2", "demo"]).resolve("demo") == "demo"


def test_no_name_among_several_is_told_to_be_needed() -> None:
    with pytest.raises(InvalidRequestError, match=r"model: must be set; .* demo, gpt2$"):
        Catalog(["gpt2", "demo"]).resolve("")


@pytest.mark.parametrize("name", ["GPT2", "gpt3", "gpt2 "])
def test_an_unknown_name_is_told_with_those_there_are(name: str) -> None:
    with pytest.raises(UnknownModelError, match=f"no model {name!r}.* demo, gpt2$"):
        Catalog(["gpt2", "demo"]).resolve(name)


def test_a_router_becomes_ready_once_every_model_has_a_worker() -> None:
    catalog = Catalog(["gpt2", "demo"])
    states = [catalog.ready]
    catalog.update(snapshot("worker-0", "gpt2"))
    states.append(catalog.ready)
    catalog.update(snapshot("worker-1", "demo"))
    states.append(catalog.ready)
    assert states == [False, False, True]


def test_a_router_stays_ready_while_any_model_has_a_worker() -> None:
    catalog = Catalog(["gpt2", "demo"])
    catalog.update(snapshot("worker-0", "gpt2"))
    catalog.update(snapshot("worker-1", "demo"))
    catalog.lose(WorkerId("worker-0", "1"))
    assert catalog.ready
    assert catalog.ready_workers() == {"gpt2": 0, "demo": 1}
    catalog.lose(WorkerId("worker-1", "1"))
    assert not catalog.ready


def test_a_worker_that_comes_back_without_a_model_does_not_serve_it() -> None:
    catalog = Catalog(["gpt2", "demo"])
    catalog.update(snapshot("worker-0", "gpt2", "demo"))
    catalog.update(snapshot("worker-0", "gpt2"))
    assert catalog.workers("demo") == []

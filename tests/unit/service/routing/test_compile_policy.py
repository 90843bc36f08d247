"""What is worth compiling where: once its absence has cost enough, on one worker first."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.routing import LADDERS, MODEL, cold, compiling, decode, failed, prefill, shape, worker
from shaperouter_service.routing.choice import Decision
from shaperouter_service.routing.compile_policy import (
    SAVINGS_THRESHOLD,
    compile_requests,
    successor_graphs,
)
from shaperouter_service.routing.decay import HALF_LIFE, DecayingSum
from shaperouter_service.routing.decision import decide
from shaperouter_service.routing.rendezvous import named
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.snapshots import GraphState
from shaperouter_service.routing.views import GraphView, WorkerView

NOW = 1000.0
TIGHT = decode(4, 64)
ENOUGH = SAVINGS_THRESHOLD * worker("a").costs.compile_seconds(TIGHT)


def test_what_has_cost_nothing_is_not_worth_compiling() -> None:
    assert not compile_requests([worker("a"), worker("b")], NOW)


def test_what_has_cost_too_little_is_not_worth_it() -> None:
    assert not compile_requests([worker("a", graphs=[cold(TIGHT, 0.9 * ENOUGH)])], NOW)


def test_what_has_cost_enough_is_compiled() -> None:
    assert compile_requests([worker("a", graphs=[cold(TIGHT, ENOUGH)])], NOW) == {"a": [TIGHT]}


def test_what_has_cost_the_fleet_enough_is_compiled_on_the_worker_that_hashing_names() -> None:
    fleet = [worker(name, graphs=[cold(TIGHT, ENOUGH / 2)]) for name in "abc"]
    assert compile_requests(fleet, NOW) == {named(TIGHT, "abc"): [TIGHT]}


def test_what_is_compiled_first_is_compiled_where_requests_for_it_go() -> None:
    """Also where several run together, which the request's own shape does not tell."""
    for request in (shape(10, 40), shape(10, 100), shape(10, 300), shape(100, 500)):
        covers = (LADDERS.first_of(MODEL, GraphKind.PREFILL), LADDERS.first_decode(MODEL, 1))
        fleet = [worker(name, ready=covers) for name in "abcd"]
        decision = decide(request, fleet, NOW)
        assert isinstance(decision, Decision)
        taken = decision.taken
        missed = cold(dataclasses.replace(taken.tight, rows=4), ENOUGH)
        fleet = [worker(n, ready=covers, graphs=[missed]) for n in "abcd"]
        assert compile_requests(fleet, NOW) == {taken.worker: [missed.signature]}


@pytest.mark.parametrize("name", "abc")
def test_what_one_worker_alone_has_missed_is_compiled_there(name: str) -> None:
    fleet = [worker(n, graphs=[cold(TIGHT, ENOUGH)] if n == name else []) for n in "abc"]
    assert compile_requests(fleet, NOW) == {name: [TIGHT]}


def test_while_one_worker_compiles_it_no_other_does() -> None:
    busy = worker("a", graphs=[compiling(TIGHT, ready_at=NOW + 5)])
    assert not compile_requests([busy, worker("b", graphs=[cold(TIGHT, 10 * ENOUGH)])], NOW)


def test_once_one_has_it_another_follows_when_it_has_missed_enough_itself() -> None:
    has = worker("a", ready=[TIGHT])
    little, much = (cold(TIGHT, seconds) for seconds in (0.9 * ENOUGH, ENOUGH))
    fleet = [has, worker("b", graphs=[little]), worker("c", graphs=[much])]
    assert compile_requests(fleet, NOW) == {"c": [TIGHT]}


def test_what_would_save_most_comes_first() -> None:
    little, much = cold(TIGHT, ENOUGH), cold(prefill(64), 3 * ENOUGH)
    assert compile_requests([worker("a", graphs=[little, much])], NOW) == {
        "a": [prefill(64), TIGHT]
    }


def test_of_graphs_that_may_serve_the_same_requests_the_best_is_compiled() -> None:
    others = [cold(decode(4, length), (2 + rank) * ENOUGH) for rank, length in enumerate((64, 128))]
    best = cold(decode(8, 128), 4 * ENOUGH)
    assert compile_requests([worker("a", graphs=[*others, best])], NOW) == {"a": [best.signature]}


def test_while_one_of_them_is_on_the_way_no_other_is_asked_for() -> None:
    graphs = [compiling(decode(8, 128), ready_at=NOW + 5), cold(TIGHT, 9 * ENOUGH)]
    assert not compile_requests([worker("a", graphs=graphs)], NOW)
    beams = cold(decode(1, 64, beams=2), 9 * ENOUGH)
    assert compile_requests([worker("a", graphs=[*graphs, beams])], NOW) == {"a": [beams.signature]}


def test_a_failed_graph_is_left_to_another_worker_until_it_may_be_tried_again() -> None:
    name = named(TIGHT, "ab")
    other = "b" if name == "a" else "a"
    waits = worker(name, graphs=[failed(TIGHT, NOW + 1, ENOUGH)])
    assert compile_requests([waits, worker(other)], NOW) == {other: [TIGHT]}
    due = worker(name, graphs=[failed(TIGHT, NOW - 1, ENOUGH)])
    assert compile_requests([due, worker(other)], NOW) == {name: [TIGHT]}


def test_a_worker_without_room_is_passed_over() -> None:
    name = named(TIGHT, "ab")
    other = "b" if name == "a" else "a"
    full = worker(name, graphs=[cold(TIGHT, ENOUGH)], room=0)
    assert compile_requests([full, worker(other)], NOW) == {other: [TIGHT]}
    assert not compile_requests([full], NOW)


def test_a_worker_without_room_for_a_graph_that_has_failed_is_passed_over() -> None:
    name = named(TIGHT, "ab")
    other = "b" if name == "a" else "a"
    full = worker(name, graphs=[failed(TIGHT, NOW - 1, ENOUGH)], room=0)
    assert compile_requests([full, worker(other)], NOW) == {other: [TIGHT]}


def test_a_frozen_worker_is_asked_for_nothing() -> None:
    frozen = worker("a", graphs=[cold(TIGHT, ENOUGH)], compiles=False)
    assert not compile_requests([frozen], NOW)


def served(signature: Signature, seconds: float) -> GraphView:
    return GraphView(signature=signature, state=GraphState.READY, served_seconds=seconds)


def test_a_successor_makes_what_has_earned_its_cost_and_what_there_was_no_room_for() -> None:
    graphs = [
        served(decode(1, 64), 2 * ENOUGH),
        served(decode(2, 64), 0.9 * ENOUGH),
        served(prefill(16), 0.0),
        cold(TIGHT, 3 * ENOUGH),
        cold(decode(4, 128), 0.9 * ENOUGH),
    ]
    spent = worker("a", graphs=graphs, room=0, exhausted=True)
    assert successor_graphs(spent) == [TIGHT, decode(1, 64)]


def test_a_worker_with_room_has_no_successor() -> None:
    assert not successor_graphs(worker("a", graphs=[served(TIGHT, ENOUGH)]))


def test_a_worker_whose_successor_would_make_nothing_new_has_none() -> None:
    graphs = [served(TIGHT, ENOUGH), *(served(prefill(length), 0.0) for length in (16, 24, 32))]
    # The worker measures its own graphs, so it may decide otherwise.
    missed = cold(decode(2, 64), 0.9 * ENOUGH)
    assert not successor_graphs(worker("a", graphs=[*graphs, missed], room=0, exhausted=True))


def test_a_worker_nearly_all_of_whose_graphs_earn_has_no_successor() -> None:
    shapes = [decode(rows, length) for rows in (1, 2, 4) for length in (64, 128, 256)]
    new = cold(decode(4, 512), ENOUGH)
    for earning, is_worth_it in ((5, True), (6, False)):
        graphs = [served(s, ENOUGH if i < earning else 0.0) for i, s in enumerate(shapes)]
        spent = worker("a", graphs=[*graphs, new], room=0, exhausted=True)
        assert bool(successor_graphs(spent)) == is_worth_it


def test_of_more_than_fits_a_successor_makes_the_best() -> None:
    idle = [served(decode(rows, length), 0.0) for rows in (1, 2) for length in (64, 128, 256, 512)]
    missed = [decode(4, 64), decode(4, 128), *(prefill(n) for n in (16, 24, 32, 48, 64, 88))]
    graphs = [cold(signature, (9 - rank) * ENOUGH) for rank, signature in enumerate(missed)]
    spent = worker("a", graphs=[*idle, *graphs], room=0, exhausted=True)
    assert successor_graphs(spent) == missed[:6]


def test_a_change_of_traffic_is_followed() -> None:
    """Graphs that saved much long ago make room for those missed now."""
    before = [decode(rows, length) for rows in (1, 2, 4) for length in (64, 128, 256)]
    now = [decode(rows, length) for rows in (1, 2, 4) for length in (512, 1024)]
    counts = {graph: DecayingSum() for graph in (*before, *now)}
    for graph in before:
        counts[graph].add(10 * ENOUGH, NOW)
    for graph in now:
        counts[graph].add(6 * ENOUGH, NOW + 2 * HALF_LIFE)
    faded = {graph: count.at(NOW + 2 * HALF_LIFE) for graph, count in counts.items()}
    graphs = [served(s, faded[s]) for s in before] + [cold(s, faded[s]) for s in now]
    spent = worker("a", graphs=graphs, room=0, exhausted=True)
    assert not set(now) - set(successor_graphs(spent))


def test_nobody_gives_up_graphs_that_earn_more_than_what_is_missed() -> None:
    earning = [served(decode(rows, 64), 10 * ENOUGH) for rows in (1, 2, 4)]
    spent = worker(
        "a", graphs=[*earning, cold(decode(4, 128), 11 * ENOUGH)], room=0, exhausted=True
    )
    assert not successor_graphs(spent)


def test_graphs_that_every_worker_makes_are_not_counted_as_room() -> None:
    first = [served(signature, 0.0) for signature in LADDERS.first(MODEL)]
    spent = worker("a", graphs=[*first, cold(TIGHT, ENOUGH)], room=0, exhausted=True)
    assert not successor_graphs(spent)


SIGNATURES = st.sampled_from(LADDERS.signatures(MODEL))


@st.composite
def views(draw: st.DrawFn, name: str) -> WorkerView:
    graphs = {
        signature: GraphView(
            signature=signature,
            state=draw(st.sampled_from(list(GraphState))),
            would_save_seconds=draw(st.floats(0, 20)),
            retry_at=NOW + draw(st.floats(-5, 5)),
        )
        for signature in draw(st.sets(SIGNATURES, max_size=8))
    }
    view = worker(name, room=draw(st.integers(0, 3)), compiles=draw(st.booleans()))
    return dataclasses.replace(view, graphs=graphs)


FLEETS = st.tuples(views("a"), views("b"), views("c"))


@given(FLEETS)
def test_nobody_is_asked_for_what_it_has_or_makes_or_must_not_make(fleet) -> None:
    by_name = {view.name: view for view in fleet}
    for name, wanted in compile_requests(fleet, NOW).items():
        view = by_name[name]
        assert view.compiles
        assert 0 < len(wanted) <= view.room
        assert len(set(wanted)) == len(wanted)
        for signature in wanted:
            assert view.state(signature) in (GraphState.COLD, GraphState.FAILED)


@given(FLEETS)
def test_what_no_worker_has_is_wanted_on_one_at_most(fleet) -> None:
    has = {s for v in fleet for s, g in v.graphs.items() if g.state is GraphState.READY}
    wanted = [s for found in compile_requests(fleet, NOW).values() for s in found if s not in has]
    assert len(set(wanted)) == len(wanted)


@given(FLEETS)
def test_routers_that_see_the_same_want_the_same(fleet) -> None:
    assert compile_requests(fleet, NOW) == compile_requests(tuple(reversed(fleet)), NOW)


@given(FLEETS)
def test_a_wish_that_was_granted_is_not_made_again(fleet) -> None:
    found = compile_requests(fleet, NOW)
    granted = [
        dataclasses.replace(
            view,
            graphs={
                **view.graphs,
                **{s: compiling(s, ready_at=NOW + 5) for s in found.get(view.name, ())},
            },
        )
        for view in fleet
    ]
    again = compile_requests(granted, NOW)
    for name, wanted in found.items():
        assert not set(wanted) & set(again.get(name, ()))

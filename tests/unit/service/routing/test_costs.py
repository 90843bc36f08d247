"""Costs of graphs: measured where they ran, scaled from a neighbour where not."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shaperouter_service.routing.costs import NOMINAL_COMPILE_SECONDS, Costs, Dimensions, cheapest
from shaperouter_service.routing.signatures import GraphKind, Signature

DIMENSIONS = Dimensions(weight_bytes=500_000_000, cache_bytes_per_token=73_728, prefill_piece=128)


def decode(rows: int = 1, length: int = 64, beams: int = 1, model: str = "m") -> Signature:
    return Signature(model=model, kind=GraphKind.DECODE, beams=beams, rows=rows, length=length)


def prefill(length: int, rows: int = 1) -> Signature:
    return Signature(model="m", kind=GraphKind.PREFILL, beams=1, rows=rows, length=length)


def costs(**measured: float) -> Costs:
    known = Costs({"m": DIMENSIONS, "n": DIMENSIONS})
    for shape, seconds in measured.items():
        rows, length = map(int, shape.strip("_").split("x"))
        known.measured(decode(rows, length), seconds)
    return known


def test_a_measured_graph_costs_what_was_measured() -> None:
    assert costs(_1x64=0.031).step_seconds(decode(1, 64)) == 0.031


def test_the_newest_average_counts() -> None:
    known = costs(_1x64=0.031)
    known.measured(decode(1, 64), 0.04)
    assert known.step_seconds(decode(1, 64)) == 0.04


def test_an_unmeasured_graph_is_scaled_from_its_nearest_neighbour() -> None:
    known = costs(_1x64=0.03, _8x1024=9.0)
    work = DIMENSIONS.work
    expected = 0.03 * work(decode(2, 64)) / work(decode(1, 64))
    assert known.step_seconds(decode(2, 64)) == pytest.approx(expected)


def test_with_kernels_rows_cost_little_and_the_length_of_a_cache_nothing() -> None:
    kernels = dataclasses.replace(DIMENSIONS, has_kernels=True)
    assert kernels.work(decode(1, 64)) == kernels.work(decode(1, 4096))
    assert kernels.work(decode(8, 64)) == pytest.approx(1.4 / 1.05 * kernels.work(decode(1, 64)))
    assert kernels.work(prefill(128)) > 5 * kernels.work(decode(1, 64))


def test_an_estimate_follows_a_neighbour_that_is_measured_later() -> None:
    known = costs(_8x1024=9.0)
    far = known.step_seconds(decode(2, 64))
    known.measured(decode(1, 64), 0.03)
    assert known.step_seconds(decode(2, 64)) != far


def test_prefill_is_not_scaled_from_decode_once_a_prefill_is_measured() -> None:
    known = costs(_1x64=1.0)
    known.measured(prefill(128), 0.1)
    work = DIMENSIONS.work
    expected = 0.1 * work(prefill(16)) / work(prefill(128))
    assert known.step_seconds(prefill(16)) == pytest.approx(expected)


def test_models_do_not_mix() -> None:
    known = costs(_1x64=1000.0)
    assert known.step_seconds(decode(model="n")) < 1


def test_work_of_a_piece_does_not_grow_with_the_prompt_but_for_attention() -> None:
    piece, long = DIMENSIONS.work(prefill(128)), DIMENSIONS.work(prefill(1024))
    assert piece < long < 1.1 * piece


shapes = st.tuples(st.sampled_from([1, 2, 4, 8]), st.sampled_from([64, 128, 256, 512, 1024]))


@given(st.dictionaries(shapes, st.floats(0.001, 10)), shapes, shapes)
def test_no_larger_graph_is_sound_at_less(measured, one, other) -> None:
    known = Costs({"m": DIMENSIONS})
    for shape, seconds in measured.items():
        known.measured(decode(*shape), seconds)
    sound = known.sound([decode(*shape) for shape in {*measured, one, other}])
    if one[0] <= other[0] and one[1] <= other[1]:
        assert sound[decode(*one)] <= sound[decode(*other)]


@given(st.dictionaries(shapes, st.floats(0.001, 10), min_size=1), st.integers(1, 8))
def test_no_graph_beats_the_cheapest_by_sound_costs(measured, runs: int) -> None:
    known = Costs({"m": DIMENSIONS})
    graphs = [decode(*shape) for shape in measured]
    for graph, seconds in zip(graphs, measured.values(), strict=True):
        known.measured(graph, seconds)
    sound = known.sound(graphs)

    def total(graph: Signature) -> float:
        return -(-runs // graph.rows) * sound[graph]

    best = cheapest(known.sound(graphs), runs)
    assert best is not None
    assert total(best) == min(map(total, graphs))


def test_one_graph_for_all_is_taken_before_several_turns_that_take_longer() -> None:
    known = costs(_1x64=0.03, _4x64=0.06)
    graphs = [decode(1, 64), decode(4, 64)]
    assert cheapest(known.sound(graphs), 4) == decode(4, 64)
    assert cheapest(known.sound(graphs), 1) == decode(1, 64)


def test_there_is_no_cheapest_of_none() -> None:
    assert cheapest({}, 1) is None


def test_compile_times_are_those_of_the_graphs_that_are_most_alike() -> None:
    known = costs()
    assert known.compile_seconds(decode()) == NOMINAL_COMPILE_SECONDS
    known.compiled(prefill(16), 2.0)
    assert known.compile_seconds(decode()) == 2.0
    known.compiled(decode(1, 64), 4.0)
    known.compiled(decode(1, 128), 6.0)
    assert known.compile_seconds(decode(8, 256)) == 5.0
    assert known.compile_seconds(decode(1, 64)) == 4.0
    known.compiled(decode(beams=4), 9.0)
    assert known.compile_seconds(decode(beams=8)) == 9.0
    assert known.compile_seconds(decode(model="n")) == NOMINAL_COMPILE_SECONDS

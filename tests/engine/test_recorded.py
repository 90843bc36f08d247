"""The graphs that a worker compiles in advance, by its record of traffic."""

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from harness.engine import CHECKPOINTS, Bench, few_rungs
from shaperouter_service.routing.ladders import PREFILL_PIECE, Ladders
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.traffic_record import TrafficRecorder
from shaperouter_service.worker.warm_up import batch_covers

MODEL = "gpt2-odd-heads"


def _bench(directory: Path, **options: Any) -> Bench:
    """An engine that requests graphs but compiles none."""
    return Bench(
        {MODEL: CHECKPOINTS[MODEL]},
        slots=2,
        ladders=few_rungs,
        compile_threads=0,
        record=directory,
        **options,
    )


def test_a_successor_does_not_compile_recorded_graphs(tmp_path: Path) -> None:
    recorded = _record(tmp_path)
    made = {}
    for make_recorded in (True, False):
        bench = _bench(tmp_path, compile_mode="warm", make_recorded=make_recorded)
        made[make_recorded] = {graph.signature for graph in bench.parts.graphs.graphs()}
    assert made[True] - made[False] == {recorded}


def test_the_number_of_graphs_of_the_warm_up_is_logged(tmp_path: Path) -> None:
    _record(tmp_path)
    with capture_logs() as lines:
        _bench(tmp_path, compile_mode="frozen")
    (told,) = (
        line for line in lines if line["event"].startswith("compiling or loading graphs before")
    )
    # Those that cover every request, and the one that is recorded.
    assert told["graphs"] == 3


@pytest.mark.parametrize(("beams_served", "is_made"), [(None, True), (1, False), (2, True)])
def test_beam_search_has_a_cover_unless_the_record_has_none(
    tmp_path: Path, beams_served: int | None, is_made: bool
) -> None:
    # That is, another test has compiled it before.
    ladders = few_rungs(max_length=128, slots=2, prefill_piece=PREFILL_PIECE)
    recorder = TrafficRecorder(tmp_path, {MODEL: ladders})
    recorder.compiled(ladders.first_decode(MODEL, ladders.usual_beams), 5.0)
    recorder.save()
    if beams_served is not None:
        _record(tmp_path, beams=beams_served)
    bench = _bench(tmp_path, beam_cover=True)
    asked_for = {str(graph.signature) for graph in bench.parts.graphs.graphs()}
    assert (f"{MODEL} decode 1x512 beams 4" in asked_for) == is_made


@pytest.mark.parametrize(
    ("rows", "slots", "is_made"), [(None, 8, True), (1, 8, True), (2, 8, False), (None, 1, False)]
)
def test_batches_have_a_cover_unless_the_record_has_one_or_there_is_one_slot(
    tmp_path: Path, rows: int | None, slots: int, is_made: bool
) -> None:
    ladders = Ladders.default(max_length=2048, slots=slots, prefill_piece=PREFILL_PIECE)
    if rows is not None:
        recorder = TrafficRecorder(tmp_path, {MODEL: ladders})
        recorder.served(ladders.decode(MODEL, rows=rows, length=1, beams=1), 100.0)
        recorder.save()
    expected = [ladders.decode(MODEL, rows=4, length=1024, beams=1)] if is_made else []
    assert batch_covers(tmp_path, {MODEL: ladders}) == expected


def _record(directory: Path, *, beams: int = 1) -> Signature:
    """Records traffic of a graph that no worker compiles by default; returns its signature."""
    ladders = few_rungs(max_length=128, slots=2, prefill_piece=PREFILL_PIECE)
    recorder = TrafficRecorder(directory, {MODEL: ladders})
    signature = ladders.decode(MODEL, rows=2 if beams == 1 else 1, length=1, beams=beams)
    recorder.served(signature, 100.0)
    recorder.save()
    return signature

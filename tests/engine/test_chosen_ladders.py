"""Chosen lengths are those of the graphs and of the model's description."""

import pytest

from harness.engine import GOLDENS, Bench
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.errors import StartupError
from shaperouter_service.routing.signatures import GraphKind

MODEL = "gpt2-untied"  # Its maximum is 128 tokens.


def test_graphs_have_the_chosen_lengths(kept_compilations: CompileCache) -> None:
    bench = Bench(
        {MODEL: GOLDENS / MODEL},
        prefill_lengths={MODEL: (24,)},
        decode_lengths={MODEL: (40, 80)},
        compile_cache=kept_compilations,
    )
    run = bench.submit(MODEL, range(1, 20), max_new_tokens=6)
    beams = bench.submit(MODEL, range(1, 20), max_new_tokens=6, num_beams=2)
    run.wait()
    beams.wait()
    asked = {signature for signature, _ in [*run.run.uses, *beams.run.uses]}
    assert {(one.kind, one.beams, one.length) for one in asked} == {
        (GraphKind.PREFILL, 1, 24),
        (GraphKind.DECODE, 1, 40),
        (GraphKind.DECODE, 2, 80),
    }


def test_a_model_reports_its_chosen_lengths() -> None:
    bench = Bench({MODEL: GOLDENS / MODEL}, decode_lengths={MODEL: (40, 80)}, compile_threads=0)
    ladders = bench.engine.model(MODEL).ladders
    assert ladders.lanes[0].decode_lengths.rungs == (40, 80, 128)
    assert ladders.lanes[1].decode_lengths.rungs == (80, 160, 256)


def test_an_engine_does_not_start_with_lengths_over_the_maximum() -> None:
    with pytest.raises(
        StartupError, match=f"prefill-lengths: must be at most 128, .* got 256 .*{MODEL}"
    ):
        Bench({MODEL: GOLDENS / MODEL}, prefill_lengths={MODEL: (24, 256)})

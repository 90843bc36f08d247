"""An engine with few graphs and two slots, and requests whose steps can be foretold."""

from collections.abc import Sequence
from typing import Any

from harness.engine import GOLDENS, Bench, Collected
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.routing.ladder import Ladder
from shaperouter_service.routing.ladders import Ladders, LaneLadders
from shaperouter_service.routing.signatures import GraphKind
from shaperouter_service.worker.scheduler import LaneScheduler

MODEL = "gpt2-untied"  # It has no end token, so runs generate all their tokens.
PIECE = 32
LENGTH = 128
# The longest rung is not a multiple of the piece.
PREFILL_LENGTHS = (16, 64, 120)
LONG = 100


def bench_of(
    piece: int,
    prefill_lengths: Sequence[int],
    *,
    rows: Sequence[int],
    beams: Sequence[int],
    compile_cache: CompileCache,
) -> Bench:
    """An engine with few graphs; those without beam search are ready."""
    lanes = tuple(
        LaneLadders(
            beams=width,
            decode_rows=Ladder(tuple(rows)),
            decode_lengths=Ladder((LENGTH,)),
        )
        for width in beams
    )
    ladders = Ladders(
        prefill_lengths=Ladder(tuple(prefill_lengths)),
        prefill_rows=Ladder(tuple(rows)),
        prefill_batch_tokens=PIECE,
        prefill_piece=piece,
        lanes=lanes,
    )
    bench = Bench(
        {MODEL: GOLDENS / MODEL}, ladders=lambda **_: ladders, compile_cache=compile_cache
    )
    bench.make_all_ready(MODEL, [1])
    return bench


def two_slots(compile_cache: CompileCache) -> Bench:
    """Two slots; prompts are read in pieces of PIECE tokens."""
    return bench_of(PIECE, PREFILL_LENGTHS, rows=[1, 2], beams=[1, 2], compile_cache=compile_cache)


def prompt_of(length: int, first: int = 0) -> list[int]:
    """A prompt of so many tokens."""
    return [(first + 7 * place) % 97 for place in range(length)]


def together(bench: Bench, lane: LaneScheduler, *requests: dict[str, Any]) -> list[Collected]:
    """Submits requests that are admitted in the same turn."""
    with bench.admission_held(MODEL, lane.beams):
        return [bench.submit(MODEL, **request) for request in requests]


def tokens_alone(bench: Bench, *requests: dict[str, Any]) -> list[list[int]]:
    """The tokens of each request, run by itself."""
    runs = []
    for request in requests:
        run = bench.submit(MODEL, **request)
        run.wait()
        runs.append(run.token_ids)
    return runs


def finish(runs: Sequence[Collected]) -> list[list[int]]:
    """The tokens of each run, once all have ended."""
    for run in runs:
        run.wait()
    return [run.token_ids for run in runs]


def served(run: Collected, kind: GraphKind) -> dict[tuple[int, int], int]:
    """Calls of the graphs of a kind that served a run, by rows and length."""
    return {
        (use.served.rows, use.served.length): use.calls
        for use in run.run.uses.values()
        if use.served.kind is kind
    }

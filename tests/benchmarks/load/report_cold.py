"""The report of cold starts: a table for each rate, and whether the targets are met."""

import math
from collections.abc import Iterator

from common.tables import NOTHING, Spread, Table, Target, targets_table

from .contestants import CTRANSLATE2, ENTRIES, SHAPEROUTER, Entry
from .outcomes import End
from .report import failures_table
from .result import Result, Run, State

# Seconds that a request may wait for a compilation.
LONGEST_STALL = 2.0


def tables(result: Result) -> list[Table]:
    """All tables that are not empty."""
    made = [
        *(_runs_table(result, rate) for rate in result.rates),
        failures_table(result),
        targets_table(targets(result)),
    ]
    return [table for table in made if table.rows]


def targets(result: Result) -> list[Target]:
    """The targets: no long stall, and no worse than a server that compiles nothing."""
    ours = [run for entry, run in _runs(result) if entry is SHAPEROUTER]
    found = [
        Target(
            text="cold: longest wait of a request for a compilation, s",
            limit=LONGEST_STALL,
            figure=Spread.of([max(max(run.stalls, default=0.0) for run in ours)]) if ours else None,
        )
    ]
    for rate in result.rates:
        latencies, goodputs = [], []
        for run in ours:
            theirs = result.find(CTRANSLATE2.name, State.COLD, run.rate, run.seed)
            if run.rate == rate and theirs is not None:
                useful = run.useful(result.unloaded)
                latencies.append(run.latency(0.99) / theirs.latency(0.99))
                goodputs.append(theirs.useful(result.unloaded) / useful if useful else math.inf)
        for text, ratios in (
            (f"p99 latency ÷ that of {CTRANSLATE2.label}", latencies),
            (f"goodput of {CTRANSLATE2.label} ÷ ours", goodputs),
        ):
            found.append(
                Target(
                    text=f"cold, {rate:.2f}/s, all seeds: {text}",
                    limit=1,
                    figure=Spread.of(ratios) if ratios else None,
                )
            )
    return found


def _runs(result: Result) -> Iterator[tuple[Entry, Run]]:
    for run in result.runs:
        yield next(entry for entry in ENTRIES if entry.name == run.contestant), run


def _runs_table(result: Result, rate: float) -> Table:
    rows = []
    for entry, run in _runs(result):
        if run.rate != rate:
            continue
        long = [stall for stall in run.stalls if stall > LONGEST_STALL]
        stalls = [f"{len(long)}", f"{max(run.stalls, default=0.0):.1f}", f"{sum(run.stalls):.1f}"]
        rows.append(
            [
                f"{run.seed}, {entry.label}",
                f"{run.ends.get(End.COMPLETED, 0)} of {run.requests}",
                *(stalls if entry is SHAPEROUTER else [NOTHING] * len(stalls)),
                *(f"{run.latency(share):.2f}" for share in (0.5, 0.99)),
                f"{run.goodput(result.unloaded):.2f}",
                NOTHING if run.first_tight is None else f"{run.first_tight:.1f}",
            ]
        )
    return Table(
        title=f"Cold, {rate:.2f} requests per second",
        head=[
            "seed, server",
            "completed",
            f"stalls over {LONGEST_STALL:g} s",
            "longest",
            "stalled in all",
            "p50",
            "p99",
            "goodput",
            "first tight answer",
        ],
        rows=rows,
        note="Each server is new. Seconds; p99 of fewer than 100 requests is the slowest. Goodput: "
        "answers within their limits per second. First tight answer: time from the first request "
        "until graphs of a request's own shape have answered it.",
    )

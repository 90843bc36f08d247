"""The report of the measurements: tables, and whether the targets are met."""

import math
import statistics
from collections.abc import Iterator, Mapping

from common.tables import NOTHING, Spread, Table, Target, targets_table

from .contestants import CTRANSLATE2, ENTRIES, PEERS, SHAPEROUTER, TRANSFORMERS, Entry
from .limits import CLASSES, FACTOR, FEW_TOKENS, REPEATS, TOKEN_SECONDS, class_name, limit
from .outcomes import End
from .result import Result, Run, State

MISSING = (End.REFUSED, End.TIMED_OUT, End.FAILED)


def tables(result: Result) -> list[Table]:
    """All tables that are not empty."""
    made = [
        *(_run_table(result, state, rate) for state, rate in _loads(result)),
        _own_counters(result),
        _peer_counters(result),
        _unloaded(result),
        failures_table(result),
        targets_table(targets(result)),
    ]
    return [table for table in made if table.rows]


def targets(result: Result) -> list[Target]:
    """The targets: no worse than either peer at the same load, cold and warm."""
    found = []
    for state, rate in _loads(result):
        ours = result.find(SHAPEROUTER.name, state, rate)
        for peer in PEERS:
            theirs = result.find(peer.name, state, rate)
            load = f"{state}, {rate:.2f}/s"
            found += [
                Target(
                    text=f"{load}: p99 latency ÷ that of {peer.label}",
                    limit=1,
                    figure=_latency_ratio(ours, theirs),
                ),
                Target(
                    text=f"{load}: goodput of {peer.label} ÷ ours",
                    limit=1,
                    figure=_goodput_ratio(result, ours, theirs),
                ),
            ]
    return found


def _loads(result: Result) -> list[tuple[State, float]]:
    """The measured states and rates, in order."""
    found = {(run.state, run.rate) for run in result.runs}
    return sorted(found, key=lambda load: (load[0] is State.WARM, load[1]))


def _runs(result: Result, state: State, rate: float) -> Iterator[tuple[Entry, Run]]:
    for entry in ENTRIES:
        run = result.find(entry.name, state, rate)
        if run:
            yield entry, run


def _run_table(result: Result, state: State, rate: float) -> Table:
    rows = []
    for entry, run in _runs(result, state, rate):
        rows.append(
            [
                entry.label,
                f"{run.ends.get(End.COMPLETED, 0)}",
                ", ".join(f"{run.ends.get(end, 0)}" for end in MISSING),
                f"{run.first_latency(0.5):.2f}",
                *(f"{run.latency(share):.2f}" for share in (0.5, 0.95, 0.99)),
                _share(run.useful(result.unloaded), run.requests),
                f"{run.goodput(result.unloaded):.2f}",
            ]
        )
    some = next(run for _, run in _runs(result, state, rate))
    return Table(
        title=f"{state.capitalize()}: {rate:.2f} requests per second for {some.seconds:.0f} s, "
        f"{some.requests} in all",
        head=[
            "",
            "completed",
            "refused, timed out, failed",
            "first p50",
            "p50",
            "p95",
            "p99",
            "in time",
            "goodput",
        ],
        rows=rows,
        note="Times are in seconds. A request that did not complete counts with its deadline of "
        f"{some.deadline:.0f} s. The p99 of fewer than 100 requests is the slowest. "
        f"{SHAPEROUTER.label} streams; the others send the first token with the last. In time: "
        "within the limit of the request. Goodput: answers in time per second.",
    )


def _own_counters(result: Result) -> Table:
    rows = []
    for state, rate in _loads(result):
        run = result.find(SHAPEROUTER.name, state, rate)
        if run is None:
            continue
        count = _Counters(run.counters)
        covers = count["cover_served_total tight"] + count["cover_served_total loose"]
        padding = count["padding_tokens_total prefill"] + count["padding_tokens_total decode"]
        tokens = padding + count["prompt_tokens_total"] + count["generation_tokens_total"]
        rows.append(
            [
                f"{state}, {rate:.2f}/s",
                f"{count['stalls_total']:.0f}",
                f"{count['stall_seconds_sum']:.1f}",
                f"{count['graph_traces_total']:.0f}",
                f"{count['graph_compiles_total compiled']:.0f}",
                _share(count["cover_served_total tight"], covers),
                _share(padding, tokens),
            ]
        )
    return Table(
        title=f"Counters of {SHAPEROUTER.label}",
        head=["", "stalls", "stall seconds", "traces", "compilations", "tight covers", "padding"],
        rows=rows,
        note="Compilations continue after the last request until all worthwhile graphs are "
        "compiled. "
        "Padding: share of the computed tokens that is thrown away.",
    )


def _peer_counters(result: Result) -> Table:
    rows = []
    for state, rate in _loads(result):
        cells = [f"{state}, {rate:.2f}/s"]
        theirs = result.find(TRANSFORMERS.name, state, rate)
        cells.append(f"{theirs.counters['graph_traces_total']:.0f}" if theirs else NOTHING)
        theirs = result.find(CTRANSLATE2.name, state, rate)
        count = _Counters(theirs.counters if theirs else {})
        batches = count["batches"]
        cells.append(f"{count['requests_in_batches'] / batches:.2f}" if batches else NOTHING)
        rows.append(cells)
    return Table(
        title="Counters of the others",
        head=["", f"{TRANSFORMERS.label}: traces", f"{CTRANSLATE2.label}: requests per batch"],
        rows=rows,
    )


def _unloaded(result: Result) -> Table:
    rows = []
    for shape in CLASSES:
        name = class_name(*shape)
        times = [result.unloaded.get(entry.name, {}).get(name) for entry in ENTRIES]
        if any(times):
            beams, prompt = shape
            allowed = limit(result.unloaded, beams=beams, prompt=prompt, new_tokens=FEW_TOKENS)
            medians = [f"{statistics.median(each):.2f}" if each else NOTHING for each in times]
            rows.append([name, *medians, f"{allowed:.2f}"])
    return Table(
        title=f"Seconds on an idle server, {FEW_TOKENS} new tokens",
        head=["", *(entry.label for entry in ENTRIES), "limit"],
        rows=rows,
        note=f"Medians of {REPEATS}. The limit of goodput is {FACTOR:g} times the fastest, and "
        f"{TOKEN_SECONDS:g} s for each further token.",
    )


def failures_table(result: Result) -> Table:
    """The requests that failed or did not complete, and why."""
    rows = [[what, why] for what, why in result.failures.items()]
    labels = {entry.name: entry.label for entry in ENTRIES}
    for run in result.runs:
        rows += [
            [f"{labels[run.contestant]}, {run.state}, {run.rate:.2f}/s", f"{count} × {reason}"]
            for reason, count in run.reasons.items()
        ]
    return Table(title="Incomplete measurements", head=["", "reason"], rows=rows)


class _Counters(dict[str, float]):
    """Counters; missing ones are 0."""

    def __init__(self, counters: Mapping[str, float]) -> None:
        super().__init__(counters)

    def __missing__(self, _: str) -> float:
        return 0.0


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else NOTHING


def _latency_ratio(ours: Run | None, theirs: Run | None) -> Spread | None:
    if ours is None or theirs is None:
        return None
    our_latency = ours.latency(0.99)
    # Two requests that were never answered do not count as equally fast.
    if our_latency >= ours.deadline:
        return Spread.of([math.inf])
    return Spread.of([our_latency / theirs.latency(0.99)])


def _goodput_ratio(result: Result, ours: Run | None, theirs: Run | None) -> Spread | None:
    if ours is None or theirs is None:
        return None
    useful = ours.useful(result.unloaded)
    return Spread.of([theirs.useful(result.unloaded) / useful if useful else math.inf])

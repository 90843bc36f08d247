"""The report of the measurements: tables, and whether the targets are met."""

from collections.abc import Iterator, Mapping
from typing import Any

from common.tables import NOTHING, Spread, Table, Target, targets_table

from .bandwidth import BYTES
from .contestants import (
    CTRANSLATE2,
    CTRANSLATE2_INT8,
    ENGINE,
    ENGINE_INT8,
    ENTRIES,
    REFERENCE,
    ROUNDED,
    SERVICE,
    TRANSFORMERS_EAGER,
    TRANSFORMERS_XLA,
    Entry,
)
from .result import Result
from .workloads import NEW_TOKENS, Kind, Workload, workloads

# Each new token takes one pass over all weights; the first one's pass is the prefill.
PASSES = NEW_TOKENS


def ratios(result: Result, workload: str, entry: Entry, other: Entry) -> Spread | None:
    """The ratios of a contestant's times to another's, round by round."""
    times = result.seconds.get(workload, {})
    pairs = zip(times.get(entry.name, []), times.get(other.name, []), strict=False)
    found = [a / b for a, b in pairs if a is not None and b is not None]
    return Spread.of(found) if found else None


def targets(result: Result) -> list[Target]:
    """The targets of this machine's size, 2 cores."""
    found = []
    for kind, other, limit in (
        (Kind.GREEDY, TRANSFORMERS_XLA, 0.95),
        (Kind.GREEDY, CTRANSLATE2, 1.0),
        (Kind.BEAMS, TRANSFORMERS_XLA, 0.75),
        (Kind.BEAMS, CTRANSLATE2, 0.65),
        (Kind.EIGHT, CTRANSLATE2, 0.65),
    ):
        found += [
            Target(
                text=f"{workload.label}: time ÷ that of {other.label}",
                limit=limit,
                figure=ratios(result, workload.name, ENGINE, other),
            )
            for workload in _of_kind(kind)
        ]
    found += [
        Target(
            text=f"{workload.label}: time ÷ the bandwidth floor",
            limit=1.1,
            figure=_over_floor(result, workload.name),
        )
        for workload in _of_kind(Kind.GREEDY)
    ]
    found += [
        Target(
            text=f"{workload.label}, int8: time ÷ that of the faster CTranslate2",
            limit=limit,
            figure=_over_faster_ctranslate2(result, workload.name),
        )
        for kind, limit in ((Kind.GREEDY, 0.6), (Kind.EIGHT, 0.45))
        for workload in _of_kind(kind)
    ]
    found.append(
        Target(
            text=f"trace + compile of a signature ÷ first call of {TRANSFORMERS_XLA.label}",
            limit=0.15,
            figure=_compile_share(result),
        )
    )
    found += [
        Target(
            text=f"{workload.label}: gRPC and scheduling ÷ time in graphs",
            limit=0.03,
            figure=_overhead(result, workload.name),
        )
        for workload in _of_kind(Kind.GREEDY)
    ]
    return found


def _over_floor(result: Result, workload: str) -> Spread | None:
    seconds = result.seconds.get(workload, {}).get(ENGINE.name, [])
    found = [
        second * bandwidth / (BYTES * PASSES)
        for second, bandwidth in zip(seconds, result.bandwidth, strict=False)
        if second is not None
    ]
    return Spread.of(found) if found else None


def _over_faster_ctranslate2(result: Result, workload: str) -> Spread | None:
    """The contestant with the faster median."""
    found = [
        ratios(result, workload, ENGINE_INT8, other) for other in (CTRANSLATE2, CTRANSLATE2_INT8)
    ]
    return max(
        (spread for spread in found if spread), key=lambda spread: spread.median, default=None
    )


def tables(result: Result) -> list[Table]:
    """All tables in order, without empty ones."""
    made = [
        _times(result),
        _ratios(result),
        _floor(result),
        _first_calls(result),
        _fresh(result),
        _options(result),
        _agreement(result),
        _failures(result),
        targets_table(targets(result)),
    ]
    return [table for table in made if table.rows]


def _of_kind(kind: Kind) -> list[Workload]:
    return [workload for workload in workloads() if workload.kind is kind]


def _measured(result: Result) -> list[Workload]:
    return [workload for workload in workloads() if result.seconds.get(workload.name)]


def _by_contestant(result: Result, figures: Mapping[tuple[str, str], str]) -> Iterator[list[str]]:
    """A table with a row for each contestant and a column for each workload."""
    for entry in ENTRIES:
        cells = [figures.get((w.name, entry.name), NOTHING) for w in _measured(result)]
        if any(cell != NOTHING for cell in cells):
            yield [entry.label, *cells]


def _table(
    result: Result, title: str, figures: Mapping[tuple[str, str], str], **more: Any
) -> Table:
    return Table(
        title=title,
        head=["", *(workload.label for workload in _measured(result))],
        rows=list(_by_contestant(result, figures)),
        **more,
    )


def _samples(result: Result) -> Iterator[tuple[tuple[str, str], list[float]]]:
    for workload, contestants in result.seconds.items():
        for contestant, seconds in contestants.items():
            found = [value for value in seconds if value is not None]
            if found:
                yield (workload, contestant), found


def _times(result: Result) -> Table:
    figures = {key: Spread.of(found).show(".0f", factor=1e3) for key, found in _samples(result)}
    return _table(
        result,
        f"Milliseconds for {NEW_TOKENS} new tokens",
        figures,
        note=f"Median of {result.rounds} rounds in turn, and the largest deviation from it; "
        f"{TRANSFORMERS_EAGER.label} takes part in every third.",
    )


def _ratios(result: Result) -> Table:
    figures = {}
    for workload in _measured(result):
        for entry in ENTRIES:
            ratio = ratios(result, workload.name, entry, ENGINE)
            if ratio and entry is not ENGINE:
                figures[workload.name, entry.name] = ratio.show()
    return _table(
        result,
        f"Time relative to {ENGINE.label}",
        figures,
        note="Median of the ratios of each round, and the largest deviation from it.",
    )


def _floor(result: Result) -> Table:
    figures = {}
    floors = [BYTES * PASSES / bandwidth for bandwidth in result.bandwidth]
    for workload in _of_kind(Kind.GREEDY):
        for entry in ENTRIES:
            seconds = result.seconds.get(workload.name, {}).get(entry.name, [])
            shares = [f / s for f, s in zip(floors, seconds, strict=False) if s is not None]
            if shares and entry not in ROUNDED:
                figures[workload.name, entry.name] = Spread.of(shares).show()
    table = _table(result, "Share of the memory-bandwidth floor", figures)
    greedy = [w for w in _measured(result) if w.kind is Kind.GREEDY]
    note = ""
    if floors:
        note = (
            f"1 is the floor: reading {BYTES / 1e6:.0f} MB of weights {PASSES} times at "
            f"{Spread.of(result.bandwidth).show('.1f', factor=1e-9)} GB/s takes "
            f"{Spread.of(floors).show('.0f', factor=1e3)} ms."
        )
    columns = [index for index, w in enumerate(_measured(result), 1) if w in greedy]
    return Table(
        title=table.title,
        head=["", *(w.label for w in greedy)],
        rows=[[row[0], *(row[index] for index in columns)] for row in table.rows],
        note=note,
    )


def _first_calls(result: Result) -> Table:
    figures = {
        (workload, contestant): f"{seconds:.1f}"
        for workload, contestants in result.first_calls.items()
        for contestant, seconds in contestants.items()
    }
    return _table(
        result,
        "Seconds of the first call of a shape, after other shapes in the same process",
        figures,
        note="One sample each.",
    )


def _fresh(result: Result) -> Table:
    rows = [
        [f"{entry.label}: the call", Spread.of([first["seconds"] for first in firsts]).show(".1f")]
        for entry in (ENGINE, TRANSFORMERS_XLA)
        if (firsts := result.fresh.get(entry.name))
    ]
    costs: dict[str, list[float]] = {}
    for first in result.fresh.get(ENGINE.name, []):
        for graph in first["graphs"]:
            costs.setdefault(graph["signature"], []).append(_cost(graph))
    rows += [
        [f"{ENGINE.label}: trace + compile {signature}", Spread.of(seconds).show(".1f")]
        for signature, seconds in costs.items()
    ]
    return Table(
        title="Seconds of the first call of a new process",
        head=["", "seconds"],
        rows=rows,
        note="One sequence, prompt 16. Shaperouter compiles its signatures concurrently.",
    )


def _options(result: Result) -> Table:
    rows = [
        [
            entry.label,
            str(len(found["seconds"])),
            str(found["traces"]),
            Spread.of(found["seconds"]).show(".2f"),
        ]
        for entry in (SERVICE, TRANSFORMERS_XLA)
        if (found := result.option_sets.get(entry.name))
    ]
    return Table(
        title="Requests with different option sets, after the first one",
        head=["", "sets", "traces", "seconds per request"],
        rows=rows,
        note="One sequence, prompt 16; all sampling options differ between sets.",
    )


def _agreement(result: Result) -> Table:
    figures = {
        (workload.name, contestant): f"{equal} of {len(workload.prompts)}"
        for workload in workloads()
        for contestant, equal in result.equal.get(workload.name, {}).items()
        if contestant != REFERENCE.name
    }
    return _table(
        result,
        f"Sequences equal to those of {REFERENCE.label}",
        figures,
        note="With int8 weights tokens may differ.",
    )


def _failures(result: Result) -> Table:
    rows = [[what, why] for what, why in result.failures.items()]
    rows += [
        [f"{entry.label}: rounds", f"disturbed by {traces} traces"]
        for entry in ENTRIES
        if (traces := result.traces_in_rounds.get(entry.name, 0))
    ]
    return Table(title="Failures", head=["", "reason"], rows=rows)


def _cost(graph: Mapping[str, float]) -> float:
    return graph["trace_seconds"] + graph["compile_seconds"]


def _compile_share(result: Result) -> Spread | None:
    """The ratios of the slowest signature to the other's first call in the same repeat."""
    pairs = zip(
        result.fresh.get(ENGINE.name, []), result.fresh.get(TRANSFORMERS_XLA.name, []), strict=False
    )
    found = [max(map(_cost, ours["graphs"])) / theirs["seconds"] for ours, theirs in pairs]
    return Spread.of(found) if found else None


def _overhead(result: Result, workload: str) -> Spread | None:
    pairs = zip(
        result.seconds.get(workload, {}).get(SERVICE.name, []),
        result.device_seconds.get(workload, {}).get(SERVICE.name, []),
        strict=False,
    )
    found = [seconds / device - 1 for seconds, device in pairs if seconds and device]
    return Spread.of(found) if found else None

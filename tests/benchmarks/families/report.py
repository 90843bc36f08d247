"""The report of the measurements: tables, and whether the targets are met."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from generation.workloads import NEW_TOKENS, Workload

from common.tables import NOTHING, Spread, Table, Target

from .checkpoint import Shape
from .measuring import Measured
from .parts import Entry, Goal, Part
from .under_load import CALLERS, OURS, SECONDS, THEIRS, Loaded, at_same_p99

# Under load, at least 1.5 times the throughput of CTranslate2.
LOAD_LIMIT = 0.67


def part_tables(part: Part, measured: Measured) -> Iterator[Table]:
    """Times, ratios and tokens of a part."""
    ours, *others = part.entries
    head = ["", *(workload.label for workload in part.workloads)]

    def rows(entries: Sequence[Entry], cell: Callable[[Workload, Entry], str]) -> list[list[str]]:
        return [
            [entry.label, *(cell(workload, entry) for workload in part.workloads)]
            for entry in entries
            if entry.label not in measured.failures
        ]

    def milliseconds(workload: Workload, entry: Entry) -> str:
        found = measured.spread(workload, entry)
        return found.show(".0f", factor=1e3) if found else NOTHING

    def ratio(workload: Workload, entry: Entry) -> str:
        found = measured.ratios(workload, ours, entry)
        return found.show() if found else NOTHING

    yield Table(
        title=f"{part.title}: milliseconds for {NEW_TOKENS} new tokens",
        head=head,
        rows=rows(part.entries, milliseconds),
        note=f"{_conditions(measured)} The second of two calls in each turn; median of "
        f"{measured.rounds} rounds, and the largest deviation from it.",
    )
    yield Table(
        title=f"{part.title}: time of {ours.label}, divided by that of each",
        head=head,
        rows=rows(others, ratio),
        note="Median of the ratios of each round, and the largest deviation from it.",
    )
    if not part.compares:
        return
    yield Table(
        title=f"{part.title}: sequences with the tokens that most contestants make",
        head=head,
        rows=rows(
            part.entries,
            lambda workload, entry: (
                f"{measured.equal[workload.name].get(entry.label, 0)} of {len(workload.prompts)}"
            ),
        ),
        note="With weights or caches of fewer bits, tokens may differ.",
    )


def load_table(shape: Shape, loaded: Loaded) -> Table:
    """Throughput and latencies under load."""
    rows = [
        [
            f"{kind}, {level.callers} callers: {label}",
            f"{level.tokens_per_second:.0f}",
            f"{1e3 * level.median:.0f}",
            f"{1e3 * level.p99:.0f}",
            f"{level.answered}",
        ]
        for kind, levels in loaded.levels.items()
        for callers in CALLERS
        for label, made in levels.items()
        for level in made
        if level.callers == callers
    ]
    return Table(
        title=f"{shape.label} under load, float32",
        head=["", "tokens/s", "median ms", "p99 ms", "requests"],
        rows=rows,
        note=f"Closed loops over gRPC, {SECONDS:.0f} s each; each server runs alone.",
    )


def failures_table(
    parts: Mapping[str, Measured | Loaded],
) -> Iterator[Table]:
    """The contestants that failed, if any did."""
    rows = [
        [f"{name}: {label}", reason]
        for name, found in parts.items()
        for label, reason in found.failures.items()
    ]
    if rows:
        yield Table(title="Not measured", head=["", "reason"], rows=rows)


def part_targets(part: Part, measured: Measured) -> Iterator[Target]:
    """The targets of a part."""
    for goal in part.goals:
        for workload in part.workloads:
            length = len(workload.prompts[0])
            if workload.kind is goal.kind and goal.length in (None, length):
                yield _target(part, measured, goal, workload)


def _target(part: Part, measured: Measured, goal: Goal, workload: Workload) -> Target:
    ours = part.entries[0]
    times = {other.label: measured.spread(workload, other) for other in goal.others}
    known = [other for other in goal.others if times[other.label]]
    fastest = min(known, key=lambda other: _median(times[other.label]), default=None)
    return Target(
        text=f"{part.title}, {workload.label}: time ÷ that of "
        f"{fastest.label if fastest else NOTHING}",
        limit=goal.limit,
        figure=measured.ratios(workload, ours, fastest) if fastest else None,
    )


def _median(times: Spread | None) -> float:
    return times.median if times else float("inf")


def load_targets(shape: Shape, loaded: Loaded) -> Iterator[Target]:
    """The targets under load."""
    for kind, levels in loaded.levels.items():
        ours, theirs = (levels.get(entry.label) for entry in (OURS, THEIRS))
        ratio = at_same_p99(ours, theirs) if ours and theirs else None
        yield Target(
            text=f"{shape.label} under load, {kind}: {THEIRS.label}'s tokens/s ÷ ours at its p99",
            limit=LOAD_LIMIT,
            figure=Spread.of([ratio]) if ratio is not None else None,
        )


def _conditions(measured: Measured) -> str:
    found = measured.conditions
    return f"{found['date']}, load {found['load_before']:.1f} before, {found['minutes']} minutes."

"""The result of a campaign, for people and for files."""

from __future__ import annotations

import collections
import json

from rich.console import Console
from rich.table import Table

from chaos.campaign import Result
from chaos.judge import Verdict

# Defects that are printed; the file of the result has all.
_SHOWN = 20


def show(result: Result, console: Console) -> None:
    """Prints the result of a campaign."""
    table = Table("request", *Verdict, title=f"seed {result.schedule.seed}")
    for name in sorted({name for name, _ in result.verdicts}):
        table.add_row(name, *(str(result.verdicts.get((name, each), 0)) for each in Verdict))
    table.add_section()
    table.add_row("all", *(str(count) for count in totals(result).values()))
    console.print(table)
    kinds = collections.Counter(fault.kind for fault in result.schedule.faults)
    console.print(f"{sum(kinds.values())} faults: ", end="")
    console.print(", ".join(f"{count} x {kind}" for kind, count in kinds.most_common()))
    for kind, count in result.skipped.items():
        console.print(f"left out, as it needs root: {count} x {kind}")
    console.print(f"processes restarted: {result.restarts}; slowest: {result.slowest:.1f} s")
    for reason, count in sorted(result.refusals.items(), key=lambda each: -each[1]):
        console.print(f"refused {count} x {reason}", markup=False)
    for defect in result.defects[:_SHOWN]:
        console.print(f"DEFECT at {defect.at} s: {defect.what}", markup=False)
    if len(result.defects) > _SHOWN:
        console.print(f"and {len(result.defects) - _SHOWN} more")


def totals(result: Result) -> dict[Verdict, int]:
    """Numbers of attempts by verdict."""
    return {
        verdict: sum(count for (_, found), count in result.verdicts.items() if found is verdict)
        for verdict in Verdict
    }


def to_json(result: Result) -> str:
    """Content of a file."""
    verdicts: dict[str, dict[str, int]] = {}
    for (name, verdict), count in result.verdicts.items():
        verdicts.setdefault(name, {})[verdict] = count
    content = {
        "schedule": json.loads(result.schedule.to_json()),
        "skipped": dict(result.skipped),
        "verdicts": verdicts,
        "refusals": dict(result.refusals),
        "restarts": result.restarts,
        "slowest_seconds": result.slowest,
        "defects": [{"at": defect.at, "what": defect.what} for defect in result.defects],
    }
    return json.dumps(content, indent=1)

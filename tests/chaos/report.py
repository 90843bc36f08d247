"""The result of a campaign, for people and for files."""

from __future__ import annotations

import collections
import json
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from chaos.campaign import Result
from chaos.injection import lacking
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
    lacks = lacking()
    for kind, count in result.skipped.items():
        console.print(f"left out, as it needs {lacks[kind]}: {count} x {kind}")
    for part, seconds in result.seconds.items():
        console.print(f"{seconds:6.1f} s  {part}")
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
        "seconds": dict(result.seconds),
        "verdicts": verdicts,
        "refusals": dict(result.refusals),
        "restarts": result.restarts,
        "slowest_seconds": result.slowest,
        "defects": [{"at": defect.at, "what": defect.what} for defect in result.defects],
    }
    return json.dumps(content, indent=1)


def show_all(contents: Sequence[str], console: Console) -> None:
    """Prints what the results of several campaigns add up to.

    Args:
        contents: What `to_json` has returned for each.
        console: Where to print it.
    """
    results = [json.loads(content) for content in contents]
    table = Table("seed", "faults", "minutes", "restarts", *Verdict, "slowest")
    kinds: collections.Counter[str] = collections.Counter()
    requests: collections.Counter[str] = collections.Counter()
    refusals: collections.Counter[str] = collections.Counter()
    faults = 0
    for result in results:
        done = collections.Counter(each["kind"] for each in result["schedule"]["faults"])
        done.subtract(result["skipped"])
        verdicts: collections.Counter[str] = collections.Counter()
        for name, counts in result["verdicts"].items():
            verdicts.update(counts)
            requests[name] += sum(counts.values())
        kinds.update(done)
        faults += done.total()
        refusals.update(result["refusals"])
        table.add_row(
            str(result["schedule"]["seed"]),
            str(done.total()),
            f"{sum(result['seconds'].values()) / 60:.1f}",
            str(result["restarts"]),
            *(str(verdicts[each]) for each in Verdict),
            f"{result['slowest_seconds']:.1f} s",
        )
    console.print(table)
    console.print(f"{faults} faults, {requests.total()} attempts of requests")
    for title, counts in (("faults", kinds), ("attempts", requests), ("refusals", refusals)):
        console.print(f"{title}: ", end="")
        parts = (f"{count} x {name}" for name, count in counts.most_common())
        console.print(", ".join(parts), markup=False)
    for result in results:
        for defect in result["defects"]:
            seed = result["schedule"]["seed"]
            console.print(f"DEFECT of seed {seed}: {defect['what']}", markup=False)

"""Measures families by every contestant in turn, and reports the results.

Writes build/bench/families.json, families.svg and families.md; with --publish also
docs/families.svg and the section in docs/measurements.md. A run with --only measures some parts
again, and keeps the others' last results.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from common.conditions import conditions
from common.files import write_figures
from common.paths import DOCS, REPOSITORY, THREADS, WORK
from common.publishing import publish_section
from common.tables import Table, targets_table
from common.terminal import console, telling

from . import measuring, under_load
from .formats import prepare
from .measuring import Measured
from .parts import Name, Part, parts
from .plot import plot
from .report import failures_table, load_table, load_targets, part_tables, part_targets
from .under_load import Level, Loaded

ROUNDS = 5
LOAD = "load"
# Measured only on request: of bfloat16, the targets are about GPT-2.
EXTRA = (Name.QWEN3_BFLOAT16,)
HEADING = "## Families against others (`make bench-families`)"
BEFORE = "## What was missed, and why"

# Results by the name of their part; those of the load by that and the name of their model.
Results = dict[str, Measured | Loaded]


def main() -> int:
    """Runs the benchmark."""
    arguments = _arguments()
    WORK.mkdir(parents=True, exist_ok=True)
    everything = parts(tiny=arguments.tiny)
    loaded_parts = [part for part in everything if part.shape.has_encoder]
    stem = "families-tiny" if arguments.tiny else "families"
    result, report = WORK / f"{stem}.json", WORK / f"{stem}.md"
    results = _read(result)
    if arguments.prepare:
        _prepare(everything)
        return 0
    if not arguments.report:
        with telling() as tell:
            for part in everything:
                if part.name in arguments.only:
                    results[part.name] = measuring.measure(part, arguments.rounds, tell)
                    _write(results, result)
            for part in loaded_parts if LOAD in arguments.only else ():
                results[f"{LOAD} {part.name}"] = under_load.measure(part.shape, tell)
                _write(results, result)
    tables = list(_tables(everything, results))
    for table in tables:
        table.show(console)
    text = "\n\n".join([_conditions(), *(table.markdown() for table in tables)])
    report.write_text(text + "\n", encoding="utf-8")
    picture = WORK / f"{stem}.svg"
    if measured := [
        (part, found)
        for part in everything
        if isinstance(found := results.get(part.name), Measured)
    ]:
        plot(measured, picture)
    console.print(f"Raw figures: {result.relative_to(REPOSITORY)}", style="dim")
    if arguments.publish:
        wanted = {part.name for part in everything} - set(EXTRA)
        wanted |= {f"{LOAD} {part.name}" for part in loaded_parts}
        if missing := wanted - results.keys():
            console.print(f"Not published: {', '.join(sorted(missing))} not measured yet.")
            return 1
        shutil.copyfile(picture, DOCS / picture.name)
        publish_section(HEADING, f"{text}\n\n![Ratios]({picture.name})", before=BEFORE)
        console.print("Published in docs/.")
    return int(any(found.failures for found in results.values()))


def _arguments() -> argparse.Namespace:
    names = [*Name, LOAD]
    parser = argparse.ArgumentParser(
        prog="make bench-families", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"rounds in turn (default: {ROUNDS})"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=names,
        help=f"a part to measure; may be given several times (default: all but {', '.join(EXTRA)})",
    )
    parser.add_argument("--tiny", action="store_true", help="tiny models, to try it out")
    parser.add_argument(
        "--prepare", action="store_true", help="only write the checkpoints, in all formats"
    )
    parser.add_argument(
        "--report", action="store_true", help="report the last results without measuring"
    )
    parser.add_argument("--publish", action="store_true", help="publish complete results in docs/")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {arguments.rounds}")
    if arguments.publish and arguments.tiny:
        parser.error("--publish is for whole models: leave out --tiny")
    arguments.only = arguments.only or [name for name in names if name not in EXTRA]
    return arguments


def _prepare(everything: Sequence[Part]) -> None:
    with telling() as tell:
        for part in everything:
            for entry in part.entries:
                tell(f"{part.shape.label} for {entry.label}")
                prepare(part.shape, entry.format)


def _tables(everything: Sequence[Part], results: Results) -> list[Table]:
    tables, targets = [], []
    for part in everything:
        if isinstance(measured := results.get(part.name), Measured):
            tables += part_tables(part, measured)
            targets += part_targets(part, measured)
    for part in everything:
        if isinstance(loaded := results.get(f"{LOAD} {part.name}"), Loaded):
            tables.append(load_table(part.shape, loaded))
            targets += load_targets(part.shape, loaded)
    return [*tables, *failures_table(results), targets_table(targets)]


def _conditions() -> str:
    found = conditions()
    return (
        f"{found['cpu']}, {found['cores']} cores, {found['memory_gib']} GiB. Models of these "
        f"shapes with random weights; {THREADS} threads for each."
    )


def _write(results: Results, path: Path) -> None:
    write_figures({name: asdict(found) for name, found in results.items()}, path)


def _read(path: Path) -> Results:
    if not path.exists():
        return {}
    content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: _loaded(found) if name.startswith(LOAD) else Measured(**found)
        for name, found in content.items()
    }


def _loaded(found: Mapping[str, Any]) -> Loaded:
    levels = {
        kind: {label: [Level(**level) for level in made] for label, made in by_label.items()}
        for kind, by_label in found["levels"].items()
    }
    return Loaded(**{**found, "levels": levels})


if __name__ == "__main__":
    sys.exit(main())

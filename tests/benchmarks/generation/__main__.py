"""Measures generation by every contestant in turn, and reports the results.

Writes build/bench/result.json, plot.svg and report.md; with --publish also docs/bench.json,
docs/bench.svg and their section in docs/measurements.md.
"""

import argparse
import shutil
import sys
import time

from common.checkpoint import CHECKPOINT, CONVERTED, convert_checkpoint, make_checkpoint
from common.conditions import conditions
from common.paths import DOCS, LOGS, REPOSITORY, WORK
from common.publishing import publish_section
from common.terminal import console, telling

from .contestants import ENTRIES
from .measuring import measure_first_calls, measure_option_sets, measure_rounds
from .plot import plot
from .report import tables
from .result import Result
from .workloads import Kind, workloads

ROUNDS = 7
FIRST, OPTIONS = "first", "options"
RESULT, PLOT, REPORT = WORK / "result.json", WORK / "plot.svg", WORK / "report.md"
HEADING = "## Generation against others (`make bench`)"
BEFORE = "## What was missed, and why"


def main() -> int:
    """Runs the benchmark."""
    arguments = _arguments()
    WORK.mkdir(parents=True, exist_ok=True)
    result = Result.read(RESULT) if arguments.report else _measured(arguments)
    plot(result, PLOT)
    found = tables(result)
    for table in found:
        table.show(console)
    text = "\n\n".join([_conditions(result), *(table.markdown() for table in found)])
    REPORT.write_text(text + "\n", encoding="utf-8")
    console.print(f"Raw figures: {RESULT.relative_to(REPOSITORY)}", style="dim")
    if arguments.publish:
        if not result.whole:
            console.print("Not published, because the result is not complete.")
            return 1
        _publish(text)
    return int(bool(result.failures))


def _arguments() -> argparse.Namespace:
    parts = [*Kind, FIRST, OPTIONS]
    names = [entry.name for entry in ENTRIES]
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"rounds in turn (default: {ROUNDS})"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=parts,
        help="a part to measure; may be given several times (default: all)",
    )
    parser.add_argument(
        "--contestant",
        action="append",
        choices=names,
        help="who takes part in the rounds; may be given several times (default: all)",
    )
    parser.add_argument(
        "--report", action="store_true", help="report the last result without measuring"
    )
    parser.add_argument("--publish", action="store_true", help="publish a complete result in docs/")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {arguments.rounds}")
    if arguments.publish and (arguments.only or arguments.contestant):
        parser.error("--publish is for whole results: leave out --only and --contestant")
    arguments.only = arguments.only or parts
    arguments.contestant = arguments.contestant or names
    return arguments


def _measured(arguments: argparse.Namespace) -> Result:
    started = time.monotonic()
    result = Result(conditions=conditions(), rounds=arguments.rounds)
    shutil.rmtree(LOGS, ignore_errors=True)
    with telling() as tell:
        tell("making the checkpoint")
        make_checkpoint(CHECKPOINT)
        tell("converting it for CTranslate2")
        convert_checkpoint(CHECKPOINT, CONVERTED)
        taking_part = [entry for entry in ENTRIES if entry.name in arguments.contestant]
        asked = [workload for workload in workloads() if workload.kind in arguments.only]
        first = workloads()[0]
        if asked:
            measure_rounds(taking_part, asked, result, tell)
        if FIRST in arguments.only:
            measure_first_calls(first, result, tell)
        if OPTIONS in arguments.only:
            measure_option_sets(first, result, tell)
    result.conditions["minutes"] = round((time.monotonic() - started) / 60, 1)
    result.write(RESULT)
    return result


def _conditions(result: Result) -> str:
    found = result.conditions
    return (
        f"{found['date']}, {found['cpu']}, {found['cores']} cores, {found['memory_gib']} GiB, load "
        f"{found['load_before']:.1f} before; {found['minutes']} minutes. GPT-2 small with random "
        f"weights, in float32 but where it says otherwise; {found['cores']} threads for each."
    )


def _publish(text: str) -> None:
    shutil.copyfile(RESULT, DOCS / "bench.json")
    shutil.copyfile(PLOT, DOCS / "bench.svg")
    publish_section(
        HEADING, f"{text}\n\n![Ratios](bench.svg)\n\n[Raw figures](bench.json)", before=BEFORE
    )
    console.print("Published in docs/.")


if __name__ == "__main__":
    sys.exit(main())

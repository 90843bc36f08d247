"""Measures services under open-loop load, cold and warm, in turn, and reports the results.

Writes build/bench/load.json, load.svg and load.md; with --publish also docs/load.json,
docs/load.svg and their section in docs/measurements.md.
"""

import argparse
import dataclasses
import shutil
import sys
import time

from common.conditions import conditions
from common.paths import DOCS, REPOSITORY, WORK
from common.processes import PeerError
from common.publishing import publish_section
from common.terminal import console, telling

from . import report_cold
from .contestant import GPT2_SMALL, GPT2_TINY
from .contestants import ENTRIES, SHAPEROUTER
from .measuring import Benchmark, Settings
from .plot import plot
from .report import tables
from .result import Result, State

COLD_RESULT = WORK / "load-cold.json"
COLD_HEADING = "## Cold starts under load (`make bench-load BENCH='--cold 77 78 79'`)"
COLD_BEFORE = "## Pronunciations of all test words"
RESULT, PLOT, REPORT = WORK / "load.json", WORK / "load.svg", WORK / "load.md"
HEADING = "## Under load, against others (`make bench-load`)"
BEFORE = COLD_BEFORE


def main() -> int:
    """Runs the benchmark."""
    arguments = _arguments()
    WORK.mkdir(parents=True, exist_ok=True)
    if arguments.cold:
        return _cold(arguments)
    result = Result.read(RESULT) if arguments.report else _measured(arguments)
    plot(result, PLOT)
    found = tables(result)
    for table in found:
        table.show(console)
    text = "\n\n".join([_conditions(result), *(table.markdown() for table in found)])
    REPORT.write_text(text + "\n", encoding="utf-8")
    console.print(f"Raw figures: {RESULT.relative_to(REPOSITORY)}", style="dim")
    if arguments.publish:
        everybody = all(result.find(entry.name, State.COLD) for entry in ENTRIES)
        if result.settings["model"] != GPT2_SMALL.name or not everybody:
            console.print("Not published, because the result is not complete.")
            return 1
        _publish(text)
    return int(bool(result.failures))


def _arguments() -> argparse.Namespace:
    names = [entry.name for entry in ENTRIES]
    parser = argparse.ArgumentParser(prog="make bench-load", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rates",
        type=_positive,
        nargs="+",
        metavar="N",
        help="requests a second of the open loops (default: 0.25, 0.5 and 0.8 of the capacity, "
        "which is measured first); cold starts are measured at the middle one",
    )
    for name, seconds, what in (
        ("--seconds", 60.0, "of each open loop with a warm server"),
        ("--cold-seconds", 75.0, "of the open loop with a cold server"),
        ("--warm-up-seconds", 120.0, "of traffic that warms a server up"),
        ("--deadline", 60.0, "that a request may take"),
    ):
        parser.add_argument(
            name,
            type=_positive,
            default=seconds,
            metavar="N",
            help=f"seconds {what} (default: {seconds:g})",
        )
    parser.add_argument(
        "--cold",
        type=int,
        nargs="+",
        metavar="SEED",
        help="measure only cold starts: a new server for each of these seeds, each rate and each "
        "contestant",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the traffic (default: 0)")
    parser.add_argument(
        "--contestant",
        action="append",
        choices=names,
        help="who takes part; may be given several times (default: all)",
    )
    parser.add_argument(
        "--tiny", action="store_true", help="serve a model of 2 layers, to test the benchmark"
    )
    parser.add_argument(
        "--report", action="store_true", help="report the last result without measuring"
    )
    parser.add_argument("--publish", action="store_true", help="publish a complete result in docs/")
    arguments = parser.parse_args()
    arguments.contestant = arguments.contestant or names
    return arguments


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return value


def _measured(arguments: argparse.Namespace) -> Result:
    started = time.monotonic()
    settings = Settings(
        model=GPT2_TINY if arguments.tiny else GPT2_SMALL,
        rates=arguments.rates,
        seconds=arguments.seconds,
        cold_seconds=arguments.cold_seconds,
        warm_up_seconds=arguments.warm_up_seconds,
        deadline=arguments.deadline,
        seed=arguments.seed,
    )
    told = dataclasses.asdict(settings) | {"model": settings.model.name}
    result = Result(conditions=conditions(), settings=told)
    entries = [entry for entry in ENTRIES if entry.name in arguments.contestant]
    with telling() as tell:
        tell("making the checkpoint, and converting it for CTranslate2")
        settings.model.make()
        settings.model.convert()
        benchmark = Benchmark(settings, result, tell)
        if arguments.cold:
            benchmark.run_cold(entries, arguments.cold)
        else:
            benchmark.run(entries)
    result.conditions["minutes"] = round((time.monotonic() - started) / 60, 1)
    result.write(COLD_RESULT if arguments.cold else RESULT)
    return result


def _cold(arguments: argparse.Namespace) -> int:
    """Measures and reports cold starts."""
    result = Result.read(COLD_RESULT) if arguments.report else _measured(arguments)
    found = report_cold.tables(result)
    for table in found:
        table.show(console)
    console.print(f"Raw figures: {COLD_RESULT.relative_to(REPOSITORY)}", style="dim")
    if arguments.publish:
        shutil.copyfile(COLD_RESULT, DOCS / "load-cold.json")
        text = "\n\n".join([_conditions(result), *(table.markdown() for table in found)])
        publish_section(
            COLD_HEADING, f"{text}\n\n[Raw figures](load-cold.json)", before=COLD_BEFORE
        )
        console.print("Published in docs/.")
    return int(bool(result.failures))


def _conditions(result: Result) -> str:
    found, settings = result.conditions, result.settings
    late = max((run.max_late for run in result.runs), default=0.0)
    rates = (
        f"Rates are shares of {result.capacity:.2f} requests a second, what the service answers "
        "when 8 are always under way. "
        if result.capacity
        else ""
    )
    warm = (
        ""
        if result.find(SHAPEROUTER.name, State.WARM) is None
        else f" A warm one has also had {settings['warm_up_seconds']:.0f} s of such traffic and "
        "has finished its compilations."
    )
    return (
        f"{found['date']}, {found['cpu']}, {found['cores']} cores, {found['memory_gib']} GiB, load "
        f"{found['load_before']:.1f} before; {found['minutes']} minutes. {settings['model']} with "
        f"random weights, in float32; {found['cores']} threads for each, the generator beside "
        f"them, which was late by {late * 1e3:.0f} ms at most. {rates}Poisson arrivals, the same "
        "for all: prompts log-normal from 8 to 512 tokens, 5 to 64 new tokens, beams 1, 2 and 4 at "
        "70, 15 and 15 %, 40 % of those without beams sampled with options of their own. A cold "
        "server starts without a cache and gets its first request when it reports that it is "
        f"ready.{warm}"
    )


def _publish(text: str) -> None:
    shutil.copyfile(RESULT, DOCS / "load.json")
    shutil.copyfile(PLOT, DOCS / "load.svg")
    publish_section(
        HEADING, f"{text}\n\n![Under load](load.svg)\n\n[Raw figures](load.json)", before=BEFORE
    )
    console.print("Published in docs/.")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PeerError as error:
        sys.exit(f"make bench-load: {error}")

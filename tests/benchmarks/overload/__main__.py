"""Measures the service under far more load than it can serve.

Writes build/bench/overload.json.
"""

import argparse
import dataclasses
import sys

from load.contestant import GPT2_SMALL, GPT2_TINY

from common.conditions import conditions
from common.files import write_figures
from common.paths import REPOSITORY, WORK
from common.processes import PeerError
from common.terminal import console, telling

from .measuring import Settings, measure
from .report import tables

RESULT = WORK / "overload.json"
# Seconds that a request may be expected to wait: short, so that what is admitted is soon answered.
OPTIONS = ["--max-queue-seconds=1"]


def main() -> int:
    """Runs the benchmark."""
    arguments = _arguments()
    settings = Settings(
        model=GPT2_TINY if arguments.tiny else GPT2_SMALL,
        options=arguments.serve_option or OPTIONS,
        factor=arguments.factor,
        before_seconds=arguments.before_seconds,
        seconds=arguments.seconds,
        after_seconds=arguments.after_seconds,
        warm_up_seconds=arguments.warm_up_seconds,
        deadline=arguments.deadline,
    )
    WORK.mkdir(parents=True, exist_ok=True)
    found = conditions()
    with telling() as tell:
        tell("making the checkpoint")
        settings.model.make()
        measured = measure(settings, tell)
    told = dataclasses.asdict(settings) | {"model": settings.model.name}
    write_figures({"conditions": found, "settings": told, **measured.figures()}, RESULT)
    console.print(f"{settings.model.name}, {' '.join(settings.options)}")
    for table in tables(settings, measured):
        if table.rows:
            table.show(console)
    console.print(f"Raw figures: {RESULT.relative_to(REPOSITORY)}", style="dim")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench-overload", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--serve-option",
        action="append",
        metavar="OPTION",
        help="of shaperouterd serve, as --serve-option=--slots=4; may be given several times "
        f"(default: {' '.join(OPTIONS)})",
    )
    for name, value, what in (
        ("--factor", 5.0, "times the capacity that the overload is"),
        ("--before-seconds", 30.0, "seconds of 0.8 times the capacity, before it"),
        ("--seconds", 60.0, "seconds of the overload"),
        ("--after-seconds", 20.0, "seconds of probes alone, after it"),
        ("--warm-up-seconds", 60.0, "seconds of traffic before everything, twice"),
        ("--deadline", 60.0, "seconds that a request may take"),
    ):
        parser.add_argument(
            name, type=float, default=value, metavar="N", help=f"{what} (default: {value:g})"
        )
    parser.add_argument(
        "--tiny", action="store_true", help="serve a model of 2 layers, to test the benchmark"
    )
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PeerError as error:
        sys.exit(f"make bench-overload: {error}")

"""Runs all simulations, and writes their figures: `make simulate`."""

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path

import structlog

from .costs import MeasuredCosts
from .report import publish
from .scenarios import SCENARIOS


def main() -> None:
    """Simulates."""
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("output", type=Path, help="file for the figures, in JSON")
    parser.add_argument("--only", action="append", help="a scenario; may be given several times")
    arguments = parser.parse_args()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    costs, rows = MeasuredCosts.read(), []
    for scenario in SCENARIOS:
        if arguments.only and scenario.__name__ not in arguments.only:
            continue
        started = time.perf_counter()
        for row in scenario(costs):
            rows.append(dataclasses.asdict(row))
            figures = {k: v for k, v in row.figures.items() if not isinstance(v, dict)}
            print(row.scenario, row.names, {k: round(v, 4) for k, v in figures.items()}, flush=True)
        print(f"{scenario.__name__}: {time.perf_counter() - started:.0f} s", flush=True)
    if not arguments.only:
        publish(rows)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

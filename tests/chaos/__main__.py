"""`make chaos`: runs a campaign, and shrinks its schedule if it fails.

    make chaos BENCH='--seed 7 --faults 100'

As root, the campaign has mounts of its own, which vanish with it. Faults that this machine does not
allow are left out, and the result says so. Exits with 1 if there was a defect; the logs of all
processes are then in build/chaos.

A calm campaign has no faults, but what every service meets: its models and their revisions change,
and its tokens and certificates are renewed. No process is restarted then, so that a long one shows
what grows, with a margin of 95 % confidence:

    make chaos BENCH='--calm --faults 720 --every 30'

A long campaign is run in parts: one for each of several seeds. Each leaves its result in
build/chaos/results, and `--report` adds them up.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from chaos.callers import CALLERS
from chaos.campaign import Campaign, Result
from chaos.faults import ALL, CHANGES, Fault
from chaos.growth import growth
from chaos.report import show, show_all, to_json
from chaos.schedule import Schedule
from chaos.shrink import shrink

WORK = Path(__file__).parents[2] / "build" / "chaos"
RESULTS = WORK / "results"
USAGE = WORK / "usage.jsonl"
INSIDE = "SHAPEROUTER_CHAOS_INSIDE"
UNSHARE = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]

console = Console()


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="make chaos", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, help="seed of the schedule (default: a random one)")
    parser.add_argument("--faults", type=int, default=60, help="number of faults (default: 60)")
    parser.add_argument(
        "--every", type=float, default=4.0, help="seconds between two faults (default: 4)"
    )
    parser.add_argument(
        "--calm",
        action="store_true",
        help="change models, tokens and certificates only, and report what grows",
    )
    parser.add_argument(
        "--callers", type=int, default=CALLERS, help=f"number of callers (default: {CALLERS})"
    )
    parser.add_argument("--schedule", type=Path, help="a file of a schedule, in place of a seed")
    parser.add_argument(
        "--trials", type=int, default=12, help="campaigns to shrink a failing one (default: 12)"
    )
    parser.add_argument(
        "--report", action="store_true", help="add up the results of all seeds so far"
    )
    return parser.parse_args()


def campaign(schedule: Schedule, callers: int) -> Result:
    """Runs a schedule against a fresh service."""
    shutil.rmtree(WORK / "service", ignore_errors=True)
    return Campaign(schedule, WORK / "service", WORK, USAGE, callers=callers).run()


def main() -> int:
    """Runs the campaign; returns the exit code."""
    # The first process of a namespace is not ended by a signal that it does not handle.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    given = arguments()
    if given.report:
        files = sorted(RESULTS.glob("*.json"), key=lambda path: int(path.stem))
        show_all([path.read_text(encoding="utf-8") for path in files], console)
        return 0
    seed = random.randrange(2**32) if given.seed is None else given.seed
    if given.schedule:
        schedule = Schedule.from_json(given.schedule.read_text(encoding="utf-8"))
    else:
        kinds = CHANGES if given.calm else ALL
        schedule = Schedule.draw(seed, count=given.faults, every=given.every, kinds=kinds)
    WORK.mkdir(parents=True, exist_ok=True)
    console.print(
        f"seed {schedule.seed}: {len(schedule.faults)} faults in {schedule.seconds:.0f} s"
    )
    result = campaign(schedule, given.callers)
    show(result, console)
    # A process that was restarted has forgotten what it used.
    if not result.restarts and (table := growth(USAGE)) is not None:
        console.print(table)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{schedule.seed}.json").write_text(to_json(result), encoding="utf-8")
    if not result.defects:
        return 0
    shutil.copytree(WORK / "service" / "logs", WORK / "logs", dirs_exist_ok=True)
    console.print(f"failed with seed {schedule.seed}; logs and results are in {WORK}")
    shortest = _shrunk(schedule, result, given.trials, given.callers)
    (WORK / "shrunk.json").write_text(shortest.to_json(), encoding="utf-8")
    console.print(f"the shortest schedule found that fails, also in {WORK / 'shrunk.json'}:")
    for fault in shortest.faults:
        console.print(str(fault), markup=False)
    return 1


def _shrunk(schedule: Schedule, result: Result, trials: int, callers: int) -> Schedule:
    """Shortens a failing schedule, and leaves out the faults after the first defect.

    Returns the schedule itself if no shorter one has failed within the trials.
    """
    first = min(defect.at for defect in result.defects)
    before = [fault for fault in schedule.faults if fault.at <= first]

    def fails(faults: Sequence[Fault]) -> bool:
        shorter = schedule.keeping(faults)
        console.print(f"trying {len(faults)} faults in {shorter.seconds:.0f} s")
        return bool(campaign(shorter, callers).defects)

    left = shrink(before, fails, trials=trials)
    return schedule if left == before else schedule.keeping(left)


if __name__ == "__main__":
    if os.geteuid() == 0 and INSIDE not in os.environ:
        tried = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
        if tried.returncode:
            sys.exit(f"chaos: this machine lets root make no namespaces: {tried.stderr.strip()}")
        os.environ[INSIDE] = "1"
        os.execvp(UNSHARE[0], [*UNSHARE, sys.executable, "-m", "chaos", *sys.argv[1:]])
    sys.exit(main())

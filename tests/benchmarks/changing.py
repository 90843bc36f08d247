"""Measures requests while models change and workers die: `make bench-changing`.

It sends 10,000 requests by default, over gRPC and over HTTP, to two workers. Each round tries a
revision as a canary and promotes it, loads and unloads another model, and every second round a
worker is killed or restarted. One caller uses two models that are loaded on demand, while there is
memory for only one. It fails if a request fails, or gets tokens of a revision that did not serve at
that time.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from harness.changing_models import Switches, Traffic, make_revision
from harness.service import Service, kept_compilations, process_exists, serving
from shaperouter import Client

DEMO = Path(__file__).parents[2] / "service" / "shaperouter_service" / "builtin" / "demo"
REVISIONS = ("first", "second", "third")
CALLERS = 8
# Memory for one of the models, but not for two.
ONE_MODEL = "30MB"
# Loaded on demand: the same files, by their own names.
ON_DEMAND = REVISIONS[1:]
SIGNALS = (signal.SIGKILL, signal.SIGTERM)


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000, help="how many to send")
    parser.add_argument("--rounds", type=int, default=10, help="how often models change")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        repository = Path(directory)
        for seed, name in enumerate(REVISIONS):
            make_revision(DEMO, repository / name, seed=seed)
        with serving(
            f"--model=demo={repository / REVISIONS[0]}",
            f"--model-repository={repository}",
            f"--on-demand-memory={ONE_MODEL}",
            "--workers=2",
            env=kept_compilations(),
        ) as service:
            sys.exit(_measure(service, chosen.requests, chosen.rounds))


def _measure(service: Service, requests: int, rounds: int) -> int:
    with Client(service.address) as client:
        switches = Switches(client, "demo")
        traffic = Traffic(service, "demo", callers=CALLERS)
        named = [Switches(client, name) for name in ON_DEMAND]
        visits = Traffic(service, *ON_DEMAND, callers=1)
        started, rolled = time.monotonic(), 0
        with traffic.flowing(), visits.flowing():
            for number in range(1, rounds + 1):
                traffic.wait_for(requests // rounds // 2)
                client.load_model("other", REVISIONS[number % len(REVISIONS)])
                switches.load(
                    REVISIONS[number % len(REVISIONS)],
                    canary=lambda: traffic.wait_for(requests // rounds // 2),
                )
                client.unload_model("other")
                if number % 2 == 0 and process_exists(pid := service.worker_pid()):
                    os.kill(pid, SIGNALS[rolled % len(SIGNALS)])
                    rolled += 1
    wrong = switches.wrong(traffic.answers)
    for each in named:
        wrong += each.wrong(visits.answers)
    seconds = time.monotonic() - started
    print(
        f"{len(traffic.answers)} requests in {seconds:.0f} s, and {len(visits.answers)} that "
        f"loaded models on demand; {rounds} revisions, {rolled} workers ended: {len(wrong)} failed "
        "or were answered by another revision"
    )
    for answer in wrong[:10]:
        print(answer)
    return 1 if wrong else 0


if __name__ == "__main__":
    main()

"""Asks every query of the dashboard and of the rules from a real Prometheus, after a load.

Starts the service with two workers and a file of tokens, and a Prometheus that scrapes it with the
rules of deploy/; sends requests of many shapes, some with beam search, some over their client's
limit, one without a token; ends each worker once under way. Then it tells which panels have no
data, and exits with 1 if any has none. With --save, what panels would show is written to a file, of
which draw_dashboard.py makes a picture.

    make check-dashboard
"""

import argparse
import concurrent.futures
import contextlib
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from harness.service import Service, serving
from harness.tools import TOOLS
from shaperouter import Client, ShaperouterError

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "shaperouter.json"
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"

# Seconds of load: several scrapes in each of Prometheus' ranges.
LOAD = 90.0
SCRAPE = 2
# What Grafana would put for its own variables.
VARIABLES = {"__rate_interval": "30s", "__range": "5m", "model": ".*", "instance": ".*"}

TOKENS = {"web": "a-token-of-web-0123456789", "batch": "a-token-of-batch-0123456789"}


@contextlib.contextmanager
def prometheus(directory: Path, target: str) -> Iterator[str]:
    """Runs a Prometheus over a service; yields its address."""
    config = {
        "global": {"scrape_interval": f"{SCRAPE}s", "evaluation_interval": f"{SCRAPE}s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {"job_name": "shaperouter", "static_configs": [{"targets": [target]}]},
        ],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    address = "127.0.0.1:19090"
    process = subprocess.Popen(
        [
            str(TOOLS / "prometheus"),
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address={address}",
            "--log.level=warn",
        ]
    )
    try:
        yield address
    finally:
        process.terminate()
        process.wait()


def ask(address: str, expression: str, **over: float) -> list[dict[str, Any]]:
    """What Prometheus answers: now, or over a range if it has start, end and step."""
    path = "query_range" if over else "query"
    query = urllib.parse.urlencode({"query": expression} | over)
    with urllib.request.urlopen(f"http://{address}/api/v1/{path}?{query}", timeout=30) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return found


def write_clients(path: Path) -> None:
    """Two clients, one of which may have a single request in flight."""
    path.write_text(
        "".join(
            f'[clients.{name}]\nsha256 = ["{hashlib.sha256(token.encode()).hexdigest()}"]\n'
            + ("max_requests = 1\n" if name == "batch" else "")
            for name, token in TOKENS.items()
        ),
        encoding="utf-8",
    )


def load(service: Service, until: float, seed: int) -> None:
    """Sends requests of random shapes, one after the other; what is refused is part of it."""
    shapes = random.Random(seed)
    name = "batch" if seed % 3 == 0 else "web"
    with Client(service.address, token=TOKENS[name]) as client:
        while time.monotonic() < until:
            with contextlib.suppress(ShaperouterError):
                client.generate(
                    [shapes.randrange(1, 1000) for _ in range(shapes.choice([3, 10, 30, 90, 200]))],
                    max_new_tokens=shapes.choice([4, 16, 48]),
                    # One alone, since the first with beams waits for compilations.
                    num_beams=2 if seed == 1 else 1,
                )


def end_worker(service: Service, name: str) -> None:
    """Ends a worker in the middle of things, as the kernel would that is out of memory."""
    os.kill(int(service.events("worker started", worker=name)[-1]["pid"]), signal.SIGKILL)


def plain(expression: str) -> str:
    """A query as Grafana sends it."""
    return re.sub(r"\$(\w+)", lambda match: VARIABLES[match[1]], expression)


def shown(address: str, start: float, end: float) -> list[dict[str, Any]]:
    """What each panel would show of a time, in seconds since 1970."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [
        {
            "title": panel["title"],
            "unit": panel["fieldConfig"]["defaults"]["unit"],
            "stacked": panel["fieldConfig"]["defaults"].get("custom", {}).get("fillOpacity") == 20,
            "targets": [
                {
                    "legend": target["legendFormat"],
                    "series": ask(address, plain(target["expr"]))
                    if target.get("instant")
                    else ask(address, plain(target["expr"]), start=start, end=end, step=SCRAPE),
                }
                for target in panel["targets"]
            ],
        }
        for panel in panels
        if "targets" in panel
    ]


def without_data(address: str) -> list[str]:
    """Queries of the dashboard, and recorded rules, that have no data."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    queries = {
        f"panel {panel['title']!r}: {target['expr']}": plain(target["expr"])
        for panel in panels
        for target in panel.get("targets", [])
    }
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]:
        rules = (rule["record"] for rule in group["rules"] if "record" in rule)
        queries |= {f"rule {name}": name for name in rules}
    return [what for what, query in queries.items() if not ask(address, query)]


def main(save: Path | None) -> int:
    """Runs it all; returns the exit code."""
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        write_clients(directory / "clients.toml")
        with (
            serving("--workers=2", f"--tokens={directory / 'clients.toml'}") as service,
            prometheus(directory, urllib.parse.urlsplit(service.metrics_url).netloc) as address,
        ):
            with contextlib.suppress(ShaperouterError), Client(service.address) as nobody:
                nobody.models()
            began = time.time()
            until = time.monotonic() + LOAD
            with concurrent.futures.ThreadPoolExecutor(9) as threads:
                for seed in range(8):
                    threads.submit(load, service, until, seed)
                # One of them at least has runs then.
                for name in ("worker-0", "worker-1"):
                    time.sleep(LOAD / 3)
                    end_worker(service, name)
            empty = without_data(address)
            if save:
                save.parent.mkdir(parents=True, exist_ok=True)
                save.write_text(json.dumps(shown(address, began, time.time())), encoding="utf-8")
            firing = sorted({each["metric"]["alertname"] for each in ask(address, "ALERTS")})
    print("alerts that are pending or fire:", ", ".join(firing) or "none")
    print(f"{len(empty)} without data", *empty, sep="\n  ")
    return 1 if empty else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", type=Path, metavar="FILE", help="what panels would show, as JSON")
    sys.exit(main(parser.parse_args().save))

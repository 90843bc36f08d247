"""Asks for everything that is shown of the service, of a real Prometheus after a load.

Starts the service with two workers, a model that continues text, one that hears, a function, and a
file of tokens, and a Prometheus that scrapes it with the rules of deploy/; sends requests of many
shapes, some with beam search, some over their client's limit, one without a token, and a recording;
loads a further model and unloads it; and kills each worker once. Then it lists the queries of the
dashboard, the recording rules and the metrics that have no data, and exits with 1 if there are any.
With --save, it writes what panels would show to a file, which draw_dashboard.py draws.

    make check-dashboard
"""

import argparse
import concurrent.futures
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path
from typing import Any

import yaml

from cluster.prometheus import RULES, Prometheus, running
from harness.dashboard import ANNOTATIONS, PANELS, filled
from harness.registry import metrics
from harness.service import GOLDENS, Service, serving
from harness.whispers import noise, wav, with_tokenizer
from shaperouter import Client, ShaperouterError

# Seconds of load: several scrapes in each of Prometheus' ranges.
LOAD = 90.0
SCRAPE = 2
# What Grafana would put for its own variables.
VARIABLES = {
    "__rate_interval": "30s",
    "__range": "5m",
    **dict.fromkeys(("cluster", "namespace", "model", "instance"), ".*"),
}

# What only devices with a clock of their own have.
ONLY_ON_A_GPU = "shaperouter_call_overhead_seconds"

TOKENS = {"web": "a-token-of-web-0123456789", "batch": "a-token-of-batch-0123456789"}

# A model without a tokenizer, which is loaded while the service runs.
FURTHER = "gpt2-untied"

# Not Prometheus' own port, where another one may already listen.
PORT = 19090


def write_clients(path: Path) -> None:
    """Two clients: one has a limit of a single request in flight, the other is an operator."""
    path.write_text(
        "".join(
            f'[clients.{name}]\nsha256 = ["{hashlib.sha256(token.encode()).hexdigest()}"]\n'
            + ("max_requests = 1\n" if name == "batch" else "operator = true\n")
            for name, token in TOKENS.items()
        ),
        encoding="utf-8",
    )


def load(service: Service, until: float, seed: int) -> None:
    """Sends requests of random shapes, one after the other; some are meant to be refused."""
    shapes = random.Random(seed)
    name = "batch" if seed % 3 == 0 else "web"
    with Client(service.address, token=TOKENS[name]) as client:
        while time.monotonic() < until:
            with contextlib.suppress(ShaperouterError):
                client.generate(
                    [shapes.randrange(1, 1000) for _ in range(shapes.choice([3, 10, 30, 90, 200]))],
                    model="demo",
                    max_new_tokens=shapes.choice([4, 16, 48]),
                    # One alone, since the first with beams waits for compilations.
                    num_beams=2 if seed == 1 else 1,
                )


def hear(service: Service) -> None:
    """Has a recording transcribed, with the times of its words."""
    with Client(service.address, token=TOKENS["web"]) as client:
        client.transcribe(wav(noise(1.0)), model="hearing", language="l1", word_timestamps=True)


def change_models(service: Service) -> None:
    """Loads a further model, uses it once and unloads it."""
    with Client(service.address, token=TOKENS["web"]) as client:
        client.load_model(FURTHER)
        client.generate([3, 4, 5], model=FURTHER, max_new_tokens=4)
        client.unload_model(FURTHER)


def end_worker(service: Service, name: str) -> None:
    """Ends a worker in the middle of things, as the kernel would that is out of memory."""
    os.kill(int(service.events("worker started", worker=name)[-1]["pid"]), signal.SIGKILL)


def shown(prometheus: Prometheus, start: float, end: float) -> list[dict[str, Any]]:
    """What each panel would show of a time, in seconds since 1970."""
    over = {"start": start, "end": end, "step": SCRAPE}
    return [
        {
            "title": panel["title"],
            "unit": panel["fieldConfig"]["defaults"]["unit"],
            "stacked": panel["fieldConfig"]["defaults"].get("custom", {}).get("fillOpacity") == 20,
            "targets": [
                {
                    "legend": target["legendFormat"],
                    "series": prometheus.ask(
                        filled(target["expr"], VARIABLES),
                        **({} if target.get("instant") else over),
                    ),
                }
                for target in panel["targets"]
            ],
        }
        for panel in PANELS
    ]


def without_data(prometheus: Prometheus, start: float, end: float) -> list[str]:
    """Queries of the dashboard, recorded rules and metrics that have no data in a time."""
    queries = {
        f"panel {panel['title']!r}: {target['expr']}": filled(target["expr"], VARIABLES)
        for panel in PANELS
        for target in panel["targets"]
    }
    queries |= {
        f"annotation {each['name']!r}": filled(each["expr"], VARIABLES) for each in ANNOTATIONS
    }
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]:
        rules = (rule["record"] for rule in group["rules"] if "record" in rule)
        queries |= {f"rule {name}": name for name in rules}
    # The dashboard shows only some of the metrics of any Python process.
    ours = ("shaperouter_", "grpc_server_")
    names = (series for metric in metrics().values() for series in metric.series)
    queries |= {f"metric {name}": name for name in names if name.startswith(ours)}
    over = {"start": start, "end": end, "step": SCRAPE}

    def has_data(query: str) -> bool:
        # What has never happened is zero, and panels leave that out.
        counted = query.removesuffix(" > 0")
        # The newest samples may be after the last step of the range.
        return bool(prometheus.ask(counted, **over) or prometheus.ask(counted))

    return [
        what
        for what, query in queries.items()
        if ONLY_ON_A_GPU not in query and not has_data(query)
    ]


def main(save: Path | None) -> int:
    """Runs it all; returns the exit code."""
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        write_clients(directory / "clients.toml")
        function = directory / "scores"
        subprocess.run([sys.executable, "-m", "harness.save_function", str(function)], check=True)
        shutil.copytree(GOLDENS / FURTHER, directory / "repository" / FURTHER)
        models = [
            f"--model-repository={directory / 'repository'}",
            "--model=demo",
            f"--model=hearing={with_tokenizer(directory)}",
            f"--model=scores={function}",
        ]
        rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
        with contextlib.ExitStack() as stack:
            service = stack.enter_context(
                serving("--workers=2", f"--tokens={directory / 'clients.toml'}", *models)
            )
            scraped = [urllib.parse.urlsplit(service.metrics_url).netloc]
            job = {"job_name": "shaperouter", "static_configs": [{"targets": scraped}]}
            prometheus = stack.enter_context(
                running(directory / "prometheus", [job], rules, interval=SCRAPE, port=PORT)
            )
            with contextlib.suppress(ShaperouterError), Client(service.address) as nobody:
                nobody.models()
            began = time.time()
            until = time.monotonic() + LOAD
            with concurrent.futures.ThreadPoolExecutor(10) as threads:
                heard = threads.submit(hear, service)
                changed = threads.submit(change_models, service)
                for seed in range(8):
                    threads.submit(load, service, until, seed)
                # A load fails if a worker ends meanwhile.
                changed.result()
                # At least one of them has runs then.
                for name in ("worker-0", "worker-1"):
                    time.sleep(LOAD / 3)
                    end_worker(service, name)
            heard.result()
            # The last counts are scraped a moment later.
            prometheus.wait_until("shaperouter_audio_seconds_total", timeout=10 * SCRAPE)
            empty = without_data(prometheus, began, time.time())
            if save:
                save.parent.mkdir(parents=True, exist_ok=True)
                panels = shown(prometheus, began, time.time())
                save.write_text(json.dumps(panels), encoding="utf-8")
            firing = sorted({each["metric"]["alertname"] for each in prometheus.ask("ALERTS")})
    print("alerts that are pending or fire:", ", ".join(firing) or "none")
    print(f"{len(empty)} without data", *empty, sep="\n  ")
    return 1 if empty else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", type=Path, metavar="FILE", help="what panels would show, as JSON")
    sys.exit(main(parser.parse_args().save))

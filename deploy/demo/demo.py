"""The demo: starts the service, streams generations, and shows what becomes of graphs meanwhile.

`make demo` runs it. Everything is real: `shaperouterd serve` as its own process with a worker, the
client library over gRPC, and the figures from /metrics. Ports are chosen free and the compile cache
is a temporary directory, so it runs beside anything; all processes end with it.
"""

import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.table import Table

from shaperouter import Client, Generation, GenerationOptions, Signature

PROMPT = "TensorFlow is"
# Sampled, since small models repeat themselves when they are greedy; the seed makes all the same.
OPTIONS: GenerationOptions = {"max_new_tokens": 40, "temperature": 0.6, "seed": 5}
START_SECONDS = 180.0

console = Console(highlight=False)


@dataclass(frozen=True, kw_only=True)
class Addresses:
    """Where the service listens."""

    grpc: str
    metrics: str


@contextmanager
def service(cache: str) -> Iterator[Addresses]:
    """Runs the service on the embedded model until the end of the context."""
    command = [sys.executable, "-m", "shaperouter_service", "serve", "--log-format=json"]
    command += ["--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", f"--compile-cache={cache}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    log = Log(process)
    try:
        with console.status("Starting the service: importing TensorFlow, loading the weights"):
            started = time.monotonic()
            listening = log.wait_for("listening")
            log.wait_for("ready")
        console.print(f"Service ready after {time.monotonic() - started:.1f} s.")
        yield Addresses(
            grpc=f"127.0.0.1:{listening['grpc_port']}", metrics=str(listening["metrics"])
        )
    finally:
        process.terminate()
        code = process.wait()
        console.print(f"Service stopped, exit code {code}.")


class Log:
    """The service's log, read by a thread so that the service never waits for us."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stderr or ():
            self._lines.put(line)
        self._lines.put(None)

    def wait_for(self, event: str) -> dict[str, Any]:
        """Returns the next line of an event; shows what the service said if it ends instead."""
        seen = []
        try:
            while (line := self._lines.get(timeout=START_SECONDS)) is not None:
                seen.append(line)
                if line.startswith("{") and (entry := json.loads(line))["event"] == event:
                    return dict(entry)
        except queue.Empty:
            sys.exit(f"No {event!r} within {START_SECONDS:.0f} s. It said:\n" + "".join(seen))
        sys.exit("The service ended before it was ready. It said:\n" + "".join(seen))


def stream(client: Client) -> tuple[Generation, float]:
    """Streams a generation to the terminal; returns it, and its latency in seconds."""
    started = time.monotonic()
    with client.stream(PROMPT, **OPTIONS) as deltas:
        for index, delta in enumerate(deltas):
            if index == 0:
                console.print(f"[bold]{PROMPT}[/bold]", end="")
            console.print(delta.text, end="", markup=False, soft_wrap=True)
            console.file.flush()
    console.print()
    return deltas.result, time.monotonic() - started


def make_ready(client: Client, signatures: list[Signature]) -> None:
    """Has graphs made, and waits for them."""
    names = ", ".join(signature.shape for signature in signatures)
    started = time.monotonic()
    with console.status(f"Making {names}"):
        for _ in client.warm_graphs(signatures):
            pass
    console.print(f"[dim]({names} made in {time.monotonic() - started:.1f} s)[/dim]")


GraphFigures = dict[tuple[str, int, int], dict[str, float]]


def read_graphs(metrics_url: str) -> GraphFigures:
    """What /metrics says of each graph: figures by kind, rows and length."""
    with urllib.request.urlopen(metrics_url, timeout=10) as response:
        text = response.read().decode()
    graphs: GraphFigures = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = sample.labels
            if "rows" in labels:
                key = labels["kind"], int(labels["rows"]), int(labels["length"])
                name = sample.name.removeprefix("shaperouter_")
                graphs.setdefault(key, {})[labels.get("result", name)] = sample.value
    return graphs


def graphs_table(metrics_url: str, calls: int) -> Table:
    """The figures of each graph, once they include so many calls: a report takes a moment."""
    deadline = time.monotonic() + 10
    graphs = read_graphs(metrics_url)
    while sum(values["device_seconds_count"] for values in graphs.values()) < calls:
        if time.monotonic() > deadline:
            sys.exit(f"/metrics does not show the {calls} calls that the responses tell of")
        time.sleep(0.05)
        graphs = read_graphs(metrics_url)

    table = Table(
        "graph", "traced", "compiled", "loaded", "calls", "device s", title="From /metrics"
    )
    for (kind, rows, length), values in sorted(graphs.items(), reverse=True):
        table.add_row(
            f"{kind} {rows}x{length}",
            f"{values['graph_traces_total']:.0f}",
            f"{values['compiled']:.0f}",
            f"{values['loaded']:.0f}",
            f"{values['device_seconds_count']:.0f}",
            f"{values['device_seconds_sum']:.4f}",
        )
    return table


def main() -> None:
    """Runs the demo."""
    requests = Table(
        "request", "latency s", "of it stalled s", "graphs that served", title="From the client"
    )

    def tell(name: str, result: Generation, seconds: float) -> None:
        served = dict.fromkeys(use.served.shape for use in result.graphs)
        stalled = f"{result.timings.stall_seconds:.3f}"
        requests.add_row(name, f"{seconds:.3f}", stalled, ", ".join(served))

    with tempfile.TemporaryDirectory(prefix="shaperouter-demo-") as cache:
        with service(cache) as addresses, Client(addresses.grpc) as client:
            console.print(
                "\nThe first request waits for no compilation: it runs on graphs that cover every "
                "request, padded.\n"
            )
            first, seconds = stream(client)
            tell("first", first, seconds)
            console.print(
                "\nTraffic would have tighter graphs made once they would have saved enough; we "
                "ask for them:\n"
            )
            asked = list(dict.fromkeys(use.asked for use in first.graphs))
            make_ready(client, asked)
            second, seconds = stream(client)
            tell("tight", second, seconds)
            calls = sum(use.calls for result in (first, second) for use in result.graphs)
            console.print()
            console.print(graphs_table(addresses.metrics, calls))
        console.print(
            "\nA service that starts anew, with the cache of the first, traces and compiles "
            "nothing:\n"
        )
        with service(cache) as addresses, Client(addresses.grpc) as client:
            make_ready(client, asked)
            console.print()
            third, seconds = stream(client)
            tell("after restart", third, seconds)
            console.print()
            console.print(graphs_table(addresses.metrics, sum(use.calls for use in third.graphs)))
            console.print(requests)


if __name__ == "__main__":
    main()

"""The demo: starts the service, streams a generation twice, and shows what the first one cost.

`make demo` runs it. Everything is real: `shaperouterd serve` as its own process with a worker, the
client library over gRPC, and the figures from /metrics. Ports are chosen free, so it runs beside
anything; all processes end with it.
"""

import json
import queue
import subprocess
import sys
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
# Sampled, since small models repeat themselves when they are greedy; the seed makes both the same.
OPTIONS: GenerationOptions = {"max_new_tokens": 40, "temperature": 0.6, "seed": 5}
START_SECONDS = 180.0

console = Console(highlight=False)


@dataclass(frozen=True, kw_only=True)
class Addresses:
    """Where the service listens."""

    grpc: str
    metrics: str


@contextmanager
def service() -> Iterator[Addresses]:
    """Runs the service on the embedded model until the end of the context."""
    command = [sys.executable, "-m", "shaperouter_service", "serve", "--log-format=json"]
    # Without the compile cache: the first request is to show what compiling takes.
    command += ["--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--compile-cache=off"]
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

    def on_stall(signature: Signature) -> None:
        console.print(f"[dim](waiting: XLA compiles {signature.shape} …)[/dim]")

    started = time.monotonic()
    with client.stream(PROMPT, on_stall=on_stall, **OPTIONS) as deltas:
        for index, delta in enumerate(deltas):
            if index == 0:
                console.print(f"[bold]{PROMPT}[/bold]", end="")
            console.print(delta.text, end="", markup=False, soft_wrap=True)
            console.file.flush()
    console.print()
    return deltas.result, time.monotonic() - started


GraphFigures = dict[tuple[str, int, int], dict[str, float]]


def read_graphs(metrics_url: str) -> GraphFigures:
    """What /metrics says of each graph: figures by kind, rows and length."""
    with urllib.request.urlopen(metrics_url, timeout=10) as response:
        text = response.read().decode()
    graphs: GraphFigures = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = sample.labels
            if "rows" in labels and labels.get("result", "compiled") == "compiled":
                key = labels["kind"], int(labels["rows"]), int(labels["length"])
                graphs.setdefault(key, {})[sample.name.removeprefix("shaperouter_")] = sample.value
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

    table = Table("graph", "traces", "compile s", "calls", "device s", title="From /metrics")
    for (kind, batch, length), values in sorted(graphs.items(), reverse=True):
        table.add_row(
            f"{kind} {batch}x{length}",
            f"{values['graph_traces_total']:.0f}",
            f"{values['graph_compile_seconds_sum']:.2f}",
            f"{values['device_seconds_count']:.0f}",
            f"{values['device_seconds_sum']:.4f}",
        )
    return table


def main() -> None:
    """Runs the demo."""
    with service() as addresses, Client(addresses.grpc) as client:
        console.print("\nThe first request of its shape waits while its graphs are compiled:\n")
        first, first_seconds = stream(client)
        console.print("\nThe same again; nothing is left to compile:\n")
        second, second_seconds = stream(client)

        console.print()
        calls = sum(use.calls for result in (first, second) for use in result.graphs)
        console.print(graphs_table(addresses.metrics, calls))
        latency = Table(
            "request", "latency s", "of it stalled s", "tokens", title="From the client"
        )
        for name, result, seconds in (
            ("first", first, first_seconds),
            ("second", second, second_seconds),
        ):
            latency.add_row(
                name,
                f"{seconds:.3f}",
                f"{result.timings.stall_seconds:.3f}",
                str(result.usage.generated_tokens),
            )
        console.print(latency)
        ratio = first_seconds / second_seconds
        console.print(f"The first took {ratio:.0f} times as long as the second.\n")


if __name__ == "__main__":
    main()

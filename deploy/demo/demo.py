"""The demo: starts the service, streams generations, and shows how graphs are compiled and reused.

`make demo` runs it. Everything is real: `shaperouterd serve` as its own process with a worker, the
client library over gRPC, and the figures from /metrics. Ports are chosen free and the compile cache
is a temporary directory, so it runs beside anything; all processes end with it.
"""

import sys
import tempfile
import time
import urllib.request

from prometheus_client.parser import text_string_to_metric_families
from rich.table import Table

from service import console, service
from shaperouter import Client, Generation, GenerationOptions, GraphKind, Signature

PROMPT = "TensorFlow is"
# Sampled, since small models repeat themselves in greedy decoding. With a seed, all runs are equal.
OPTIONS: GenerationOptions = {"max_new_tokens": 40, "temperature": 0.6, "seed": 5}
# Otherwise further graphs would be compiled beside the streams whose times are shown.
NO_BEAMS = "--beam-cover=off"


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
    """Warms graphs, and waits for them."""
    names = ", ".join(signature.shape for signature in signatures)
    started = time.monotonic()
    with console.status(f"Making {names}"):
        for _ in client.warm_graphs(signatures):
            pass
    console.print(f"[dim]({names} made in {time.monotonic() - started:.1f} s)[/dim]")


GraphFigures = dict[Signature, dict[str, float]]


def read_graphs(metrics_url: str) -> GraphFigures:
    """The figures of each graph in /metrics."""
    with urllib.request.urlopen(metrics_url, timeout=10) as response:
        text = response.read().decode()
    graphs: GraphFigures = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = sample.labels
            if "rows" in labels:
                signature = Signature(
                    model=labels["model"],
                    kind=GraphKind(labels["kind"]),
                    rows=int(labels["rows"]),
                    length=int(labels["length"]),
                    beams=int(labels["beams"]),
                )
                name = sample.name.removeprefix("shaperouter_")
                graphs.setdefault(signature, {})[labels.get("result", name)] = sample.value
    return graphs


def graphs_table(metrics_url: str, calls: int) -> Table:
    """Waits until the figures include this many calls, and returns those of each graph."""
    deadline = time.monotonic() + 10
    graphs = read_graphs(metrics_url)
    while sum(values["device_seconds_count"] for values in graphs.values()) < calls:
        if time.monotonic() > deadline:
            sys.exit(f"/metrics does not show the {calls} calls that the responses report")
        time.sleep(0.05)
        graphs = read_graphs(metrics_url)

    table = Table(
        "graph", "traced", "compiled", "loaded", "calls", "device s", title="From /metrics"
    )
    for signature in sorted(graphs, key=lambda graph: (graph.kind, graph.length), reverse=True):
        values = graphs[signature]
        table.add_row(
            signature.shape,
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
        "request", "latency s", "stalled s", "graphs that served", title="From the client"
    )

    def tell(name: str, result: Generation, seconds: float) -> None:
        served = dict.fromkeys(use.served.shape for use in result.graphs)
        stalled = f"{result.timings.stall_seconds:.3f}"
        requests.add_row(name, f"{seconds:.3f}", stalled, ", ".join(served))

    with tempfile.TemporaryDirectory(prefix="shaperouter-demo-") as cache:
        with service(cache, NO_BEAMS) as addresses, Client(addresses.grpc) as client:
            console.print(
                "\nThe first request waits for no compilation: it runs on graphs that cover every "
                "request, padded.\n"
            )
            first, seconds = stream(client)
            tell("first", first, seconds)
            console.print(
                "\nWorkers compile tighter graphs once these would have saved enough time; we "
                "request them now:\n"
            )
            asked = list(dict.fromkeys(use.asked for use in first.graphs))
            make_ready(client, asked)
            second, seconds = stream(client)
            tell("tight", second, seconds)
            calls = sum(use.calls for result in (first, second) for use in result.graphs)
            console.print()
            console.print(graphs_table(addresses.metrics, calls))
        console.print("\nA new service with the cache of the first traces and compiles nothing:\n")
        with service(cache, NO_BEAMS) as addresses, Client(addresses.grpc) as client:
            make_ready(client, asked)
            console.print()
            third, seconds = stream(client)
            tell("after restart", third, seconds)
            console.print()
            console.print(graphs_table(addresses.metrics, sum(use.calls for use in third.graphs)))
            console.print(requests)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted")

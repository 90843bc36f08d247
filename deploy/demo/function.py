"""The demo of functions: the model of Transformers' XLA guide, called with batches of 1 to 33.

`make demo-function` runs it. First the guide's way, `tf.function(model, jit_compile=True)` in this
process, which traces and compiles each batch size. Then a service of the same model, saved as a
`.keras` file, is called through the client: first with the graph that it starts with, then with a
graph for each size of the ladder. All three must give equal results.
"""

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from service import console, service
from shaperouter import Client, Inference

NAME = "guide"
BATCHES = range(1, 34)
# The ladder of the batch, beyond its first size, whose graph the service starts with.
LADDER = [f"{NAME} call {rows}x1" for rows in (2, 4, 8, 16, 32)]
TOLERANCE = 1e-5

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One call with each batch.

    Attributes:
        outputs: The results, for each batch [rows, 5].
        latencies: Of the calls, in seconds.
        graphs: Calls of each graph, by its number of rows.
        traces: Number of traces so far.
    """

    outputs: Sequence[Array]
    latencies: Sequence[float]
    graphs: Counter[int]
    traces: int

    @property
    def computed(self) -> int:
        """Rows that were computed, with padding."""
        return sum(rows * calls for rows, calls in self.graphs.items())


def call_all(
    call: Callable[[Array], Any], batches: Sequence[Array]
) -> tuple[list[Any], list[float]]:
    """Calls a function with each batch, and measures the latencies in seconds."""
    answers, latencies = [], []
    for batch in batches:
        started = time.monotonic()
        answers.append(call(batch))
        latencies.append(time.monotonic() - started)
    return answers, latencies


def call_function(path: Path, batches: Sequence[Array]) -> Pass:
    """Saves the guide's model, and calls it as the guide does."""
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
    with console.status("Importing TensorFlow"):
        # Takes seconds, in which the console says so.
        import tensorflow as tf  # noqa: PLC0415
    tf.get_logger().setLevel("ERROR")  # It warns of the retracing that is shown here.

    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((10,), name="features"),
            tf.keras.layers.Dense(10, activation="relu"),
            tf.keras.layers.Dense(5, activation="softmax", name="classes"),
        ]
    )
    model.save(path)
    xla_fn = tf.function(model, jit_compile=True)
    with console.status("Calling tf.function(model, jit_compile=True)"):
        outputs, latencies = call_all(lambda batch: xla_fn(tf.constant(batch)).numpy(), batches)
    return Pass(
        outputs=outputs,
        latencies=latencies,
        graphs=Counter(map(len, batches)),
        traces=xla_fn.experimental_get_tracing_count(),
    )


def call_service(client: Client, batches: Sequence[Array]) -> Pass:
    """Calls the service."""
    answers: list[Inference]
    answers, latencies = call_all(lambda batch: client.infer(NAME, {"features": batch}), batches)
    calls: Counter[int] = Counter()
    for answer in answers:
        for use in answer.metadata.graphs:
            calls[use.served.rows] += use.calls
    return Pass(
        outputs=[answer["classes"] for answer in answers],
        latencies=latencies,
        graphs=calls,
        traces=sum(graph.traces for graph in client.graphs(model=NAME)),
    )


def summary(passes: dict[str, Pass]) -> Table:
    """The passes, side by side."""
    asked = sum(BATCHES)
    table = Table(
        "",
        "traces",
        "sizes of graphs",
        "padding",
        "slowest ms",
        "all s",
        title=f"{len(BATCHES)} calls with batches of {BATCHES[0]} to {BATCHES[-1]}: {asked} rows",
    )
    for name, each in passes.items():
        sizes = sorted(each.graphs)
        shown = " ".join(map(str, sizes)) if len(sizes) < 10 else f"{sizes[0]} … {sizes[-1]}"
        table.add_row(
            name,
            str(each.traces),
            shown,
            f"{(each.computed - asked) / each.computed:.0%}",
            f"{1000 * max(each.latencies):.1f}",
            f"{sum(each.latencies):.3f}",
        )
    return table


def main() -> None:
    """Runs the demo."""
    rng = np.random.default_rng(0)
    batches = [rng.normal(size=(rows, 10)).astype(np.float32) for rows in BATCHES]
    with tempfile.TemporaryDirectory(prefix="shaperouter-demo-") as directory:
        path = Path(directory) / f"{NAME}.keras"
        passes = {"tf.function": call_function(path, batches)}
        console.print(
            "tf.function(model, jit_compile=True) traced and compiled "
            f"{passes['tf.function'].traces} shapes for {len(BATCHES)} calls.\n\n"
            "Now as a service:\n"
        )
        with (
            service(f"{directory}/cache", f"--model={NAME}={path}") as addresses,
            Client(addresses.grpc) as client,
        ):
            passes["service, at start"] = call_service(client, batches)
            started = time.monotonic()
            with console.status("Compiling the other sizes of the ladder"):
                for _ in client.warm_graphs(LADDER):
                    pass
            console.print(
                f"The graphs of the other {len(LADDER)} sizes of the ladder were compiled in "
                f"{time.monotonic() - started:.1f} s; meanwhile the service could serve."
            )
            passes["service, warm"] = call_service(client, batches)
    console.print()
    console.print(summary(passes))
    expected, *others = [each.outputs for each in passes.values()]
    difference = max(
        float(np.abs(one - other).max())
        for outputs in others
        for one, other in zip(expected, outputs, strict=True)
    )
    console.print(f"Largest difference between their results: {difference:.1e}.")
    if difference > TOLERANCE:
        sys.exit(f"The results differ by more than {TOLERANCE}.")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted")

"""What multiplying in blocks gains, for the products of a step of GPT-2's small size on a CPU.

The products of all layers, of few rows by the weights, as XLA multiplies them whole and as
`models.layers.linear` has it multiply them; in turn in one run. They read 340 MB of weights.

Run by ``make bench-products``.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

from shaperouter_service.models import DeviceKind, Weights
from shaperouter_service.models.layers import linear

WIDTH, LAYERS = 768, 12
# Of a layer: queries, keys and values; attention's output; the feed-forward layer in and out.
SHAPES = {
    "qkv": (WIDTH, 3 * WIDTH),
    "out": (WIDTH, WIDTH),
    "up": (WIDTH, 4 * WIDTH),
    "down": (4 * WIDTH, WIDTH),
}
ROWS = (1, 2, 4, 8, 16, 32)
ROUNDS = 9
STEPS = 3


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="measurements of each")
    rounds = parser.parse_args().rounds
    variables = {
        f"{layer}.{name}.{part}": tf.Variable(0.02 * tf.random.normal(size), trainable=False)
        for layer in range(LAYERS)
        for name, shape in SHAPES.items()
        for part, size in (("weight", shape), ("bias", shape[1:]))
    }
    print(f"Milliseconds for the products of {LAYERS} layers; medians of {rounds}:")
    print("| rows | whole | in blocks | ratio |")
    print("|---|---|---|---|")
    for rows in ROWS:
        # Products for a GPU are whole.
        whole, blocks = (
            _step(Weights(variables, device), rows) for device in (DeviceKind.GPU, DeviceKind.CPU)
        )
        times: dict[Callable[[], None], list[float]] = {whole: [], blocks: []}
        for _ in range(rounds):
            for run, found in times.items():
                started = time.perf_counter()
                run()
                found.append(1000 * (time.perf_counter() - started) / STEPS)
        medians = {run: statistics.median(found) for run, found in times.items()}
        ratio = medians[blocks] / medians[whole]
        print(
            f"| {rows} | {medians[whole]:.1f} | {medians[blocks]:.1f} | {ratio:.2f} |", flush=True
        )


def _step(weights: Weights, rows: int) -> Callable[[], None]:
    """A call of STEPS steps, compiled."""

    @tf.function(jit_compile=True, autograph=False)
    def multiply(x: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
        values = weights.read()

        def step(index: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            for layer in range(LAYERS):
                qkv = linear(values, f"{layer}.qkv", x)
                x += linear(values, f"{layer}.out", qkv[:, :WIDTH] * qkv[:, -WIDTH:])
                inner = tf.maximum(linear(values, f"{layer}.up", x), 0.0)
                x += linear(values, f"{layer}.down", inner)
            return index + 1, x / tf.reduce_max(tf.abs(x))

        return tf.while_loop(lambda index, x: index < steps, step, (tf.constant(0), x))[1]

    x, steps = tf.random.normal([rows, WIDTH]), tf.constant(STEPS)
    call = multiply.get_concrete_function(x, steps)
    call(x, steps)
    return lambda: call(x, steps).numpy()


if __name__ == "__main__":
    main()

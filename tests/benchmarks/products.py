"""Speed of the native kernels' matrix products at GPT-2's small size on a CPU.

Times the products of all layers and of the vocabulary, by the number of rows: computed by XLA,
whole and in the blocks that `models.layers.linear` uses for few rows, and by the kernels, with
weights of each type; in turn in one run. In float32 the products read 494 MB of weights.

Run by ``make bench-products``.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from shaperouter_service.kernels import choose, pack
from shaperouter_service.models import DeviceKind, Weights
from shaperouter_service.models.layers import linear, output_logits

WIDTH, LAYERS, VOCABULARY = 768, 12, 50257
# Matrices of a layer: queries, keys and values; output of attention; feed-forward in and out.
SHAPES = {
    "qkv": (WIDTH, 3 * WIDTH),
    "out": (WIDTH, WIDTH),
    "up": (WIDTH, 4 * WIDTH),
    "down": (4 * WIDTH, WIDTH),
}
ROWS = (1, 2, 4, 8, 16, 32, 128, 512)
# TensorFlow has no public name for the last one. Here it has the vocabulary, too.
PACKED = (tf.float32, tf.bfloat16, tf.int8, tf.as_dtype("int4"))
ROUNDS = 7


def main() -> None:
    """Measures and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="number of measurements")
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="rows of the products")
    arguments = parser.parse_args()
    print(f"Kernels: {choose('auto')}")
    contestants = _contestants()
    print(f"Milliseconds for the products of {LAYERS} layers and the vocabulary; medians of")
    print(
        f"{arguments.rounds} rounds in turn; the ratio is the native kernels' time to XLA's best:"
    )
    print(f"| rows | {' | '.join(contestants)} | float32: ratio |")
    print(f"|---|{'---|' * len(contestants)}---|")
    for rows in arguments.rows:
        steps = {name: _step(weights, rows) for name, weights in contestants.items()}
        times: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(arguments.rounds):
            for name, run in steps.items():
                started = time.perf_counter()
                run()
                times[name].append(1000 * (time.perf_counter() - started))
        medians = {name: statistics.median(found) for name, found in times.items()}
        xla = min(value for name, value in medians.items() if name.startswith("XLA"))
        ratio = medians["kernels, float32"] / xla
        figures = " | ".join(f"{value:.1f}" for value in medians.values())
        print(f"| {rows} | {figures} | {ratio:.2f} |", flush=True)


def _contestants() -> dict[str, Weights]:
    """The same weights in each contestant's format."""
    rng = np.random.default_rng(0)
    matrices = {
        f"{layer}.{name}.weight": rng.normal(0, 0.02, shape).astype(np.float32)
        for layer in range(LAYERS)
        for name, shape in SHAPES.items()
    }
    matrices["wte"] = rng.normal(0, 0.02, (VOCABULARY, WIDTH)).astype(np.float32)
    biases = {
        f"{layer}.{name}.bias": tf.Variable(tf.zeros(shape[1:]), trainable=False)
        for layer in range(LAYERS)
        for name, shape in SHAPES.items()
    }
    plain = {name: tf.Variable(matrix, trainable=False) for name, matrix in matrices.items()}
    # On a GPU, products are not split into blocks.
    found = {
        "XLA, whole": Weights(plain | biases, DeviceKind.GPU),
        "XLA, in blocks": Weights(plain | biases, DeviceKind.CPU),
    }
    for dtype in PACKED:
        tensors, packed = dict(biases), {}
        for name, matrix in matrices.items():
            panels = pack(matrix.T if name == "wte" else matrix, np.dtype(dtype.as_numpy_dtype))
            tensors[name] = tf.Variable(panels.values, trainable=False)
            if panels.scales is not None:
                tensors[name + Weights.SCALES] = tf.Variable(panels.scales, trainable=False)
            packed[name] = panels.shape
        found[f"kernels, {dtype.name}"] = Weights(tensors, DeviceKind.CPU, packed)
    return found


def _step(weights: Weights, rows: int) -> Callable[[], None]:
    """A compiled call of all products."""

    @tf.function(jit_compile=True, autograph=False)
    def multiply(x: tf.Tensor) -> tf.Tensor:
        values = weights.read()
        for layer in range(LAYERS):
            qkv = linear(values, f"{layer}.qkv", x)
            x += linear(values, f"{layer}.out", qkv[:, :WIDTH] * qkv[:, -WIDTH:])
            inner = tf.maximum(linear(values, f"{layer}.up", x), 0.0)
            x += linear(values, f"{layer}.down", inner)
        # As in a model, only the last tokens if there are many rows.
        return output_logits(values, "wte", x[:16])

    x = tf.random.normal([rows, WIDTH])
    call = multiply.get_concrete_function(x)
    call(x)
    return lambda: call(x).numpy()


if __name__ == "__main__":
    main()

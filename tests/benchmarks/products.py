"""What multiplying in blocks gains, for the products of a step of GPT-2's small size on a CPU.

Few rows times a weight matrix, as XLA multiplies them whole and as `models.layers.linear` has it
multiply them; in turn in one run. Every product has weights of its own, so that they come from
memory as they do in a step.

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

# Of GPT-2 small: queries, keys and values; attention's output; the feed-forward layer in and out.
SHAPES = ((768, 2304), (768, 768), (768, 3072), (3072, 768))
LAYERS = 12
ROWS = (1, 2, 4, 8, 16, 32)
ROUNDS = 9
REPEATS = 3

Layers = list[dict[str, tf.Variable]]


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="measurements of each")
    rounds = parser.parse_args().rounds
    print(f"Milliseconds for the products of {LAYERS} layers; medians of {rounds}:")
    print("| rows | inputs x outputs | whole | in blocks | ratio |")
    print("|---|---|---|---|---|")
    for rows in ROWS:
        total = [0.0, 0.0]
        for shape in SHAPES:
            whole, blocks = _measure(rows, *shape, rounds)
            total = [total[0] + whole, total[1] + blocks]
            print(_line(rows, " x ".join(map(str, shape)), whole, blocks), flush=True)
        print(_line(rows, "all", *total), flush=True)


def _line(rows: int, name: str, whole: float, blocks: float) -> str:
    return f"| {rows} | {name} | {whole:.1f} | {blocks:.1f} | {blocks / whole:.2f} |"


def _measure(rows: int, inputs: int, outputs: int, rounds: int) -> tuple[float, float]:
    """Milliseconds for the product of every layer, whole and in blocks."""
    layers: Layers = [
        {
            "weight": tf.Variable(tf.random.normal([inputs, outputs]), trainable=False),
            "bias": tf.Variable(tf.random.normal([outputs]), trainable=False),
        }
        for _ in range(LAYERS)
    ]
    # Products for a GPU are whole.
    run = [_compiled(layers, rows, inputs, device) for device in (DeviceKind.GPU, DeviceKind.CPU)]
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for call, found in zip(run, times, strict=True):
            started = time.perf_counter()
            call()
            found.append(1000 * (time.perf_counter() - started) / REPEATS)
    return statistics.median(times[0]), statistics.median(times[1])


def _compiled(layers: Layers, rows: int, inputs: int, device: DeviceKind) -> Callable[[], None]:
    @tf.function(jit_compile=True, autograph=False)
    def multiply(x: tf.Tensor, repeats: tf.Tensor) -> tf.Tensor:
        weights = [
            Weights({f"layer.{name}": variable for name, variable in layer.items()}, device).read()
            for layer in layers
        ]

        def step(index: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            for own in weights:
                # One product needs the one before it, as in a model.
                product = linear(own, "layer", x)
                x += 1e-9 * tf.reduce_max(product, axis=-1, keepdims=True)
            return index + 1, x

        return tf.while_loop(lambda index, x: index < repeats, step, (tf.constant(0), x))[1]

    x, repeats = tf.random.normal([rows, inputs]), tf.constant(REPEATS)
    call = multiply.get_concrete_function(x, repeats)
    call(x, repeats)
    return lambda: call(x, repeats).numpy()


if __name__ == "__main__":
    main()

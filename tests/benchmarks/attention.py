"""Speed of the native kernels' attention at GPT-2's small size on a CPU.

Times the attention of all layers, by the positions that the caches have and by those in use. XLA
and the kernels take turns in one run.

Run by ``make bench-attention``.
"""

import argparse
import os
import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

from shaperouter_service import kernels
from shaperouter_service.models.layers import attention

LAYERS, HEADS, SIZE = 12, 12, 64
ROUNDS = 15


class Case(NamedTuple):
    """Rows, queries of each row, length of the cache, and positions up to the last query."""

    rows: int
    queries: int
    length: int
    end: int


CASES = {
    "a step": [Case(1, 1, 128, 100), Case(1, 1, 1024, 100), Case(1, 1, 1024, 1000)],
    "a step of 8 rows": [Case(8, 1, 128, 100), Case(8, 1, 1024, 100), Case(8, 1, 1024, 1000)],
    "a step of 4 beams": [Case(1, 4, 512, 400), Case(1, 4, 4096, 400), Case(1, 4, 4096, 4000)],
    "a prompt": [Case(1, 128, 128, 128), Case(1, 128, 1024, 128), Case(1, 128, 1024, 1024)],
}


def main() -> None:
    """Measures and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="number of measurements")
    rounds = parser.parse_args().rounds
    print(f"Kernels: {kernels.choose('auto')}")
    print(f"Milliseconds of {LAYERS} layers; medians of {rounds} rounds in turn:")
    print("| | rows | queries | room | held | XLA | kernels | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for name, cases in CASES.items():
        for case in cases:
            calls = [_call(case, attend) for attend in (_by_xla, _by_kernels)]
            times: list[list[float]] = [[], []]
            for _ in range(rounds):
                for call, found in zip(calls, times, strict=True):
                    started = time.perf_counter()
                    call()
                    found.append(1000 * (time.perf_counter() - started))
            xla, native = map(median, times)
            figures = " | ".join(map(str, case))
            print(f"| {name} | {figures} | {xla:.2f} | {native:.2f} | {native / xla:.2f} |")


Attend = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, Case], tf.Tensor]


def _by_xla(query: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, case: Case) -> tf.Tensor:
    ends = case.end - tf.range(case.queries)[::-1]
    visible = tf.range(case.length) < ends[:, tf.newaxis]
    return attention(query, keys, values, visible, SIZE**-0.5)


def _by_kernels(query: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, case: Case) -> tf.Tensor:
    ends = tf.fill([case.rows], case.end)
    return kernels.attend(query, keys, values, ends, SIZE**-0.5, causal=True)


def _call(case: Case, attend: Attend) -> Callable[[], None]:
    """A compiled call of all layers' attention; each layer has its own caches."""

    @tf.function(jit_compile=True, autograph=False)
    def all_layers(query: tf.Tensor, caches: list[tf.Tensor]) -> tf.Tensor:
        x = query
        for keys, values in zip(caches[::2], caches[1::2], strict=True):
            x = query + attend(x, keys, values, case)
        return x

    shape = [case.rows, HEADS, case.length, SIZE]
    caches = [tf.random.normal(shape) for _ in range(2 * LAYERS)]
    query = tf.random.normal([case.rows, HEADS, case.queries, SIZE])
    all_layers(query, caches)
    return lambda: all_layers(query, caches).numpy()


if __name__ == "__main__":
    main()

"""Timing of steps and of the device's memory bandwidth."""

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from executable import Arrays, Executable, only
from manifest import Manifest


def seconds_of(call: Callable[[], Any]) -> float:
    """The time of a call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timing:
    """The time of decoding.

    Attributes:
        step_seconds: Of one step: what a call of many takes longer than a call of one, a step.
            The median of all repeats.
        step_seconds_quartiles: The first and the last quartile.
        call_seconds: What a call takes besides.
        step_bytes: What a step must read: weights, and caches.
        bandwidth: Bandwidth of the device's memory in bytes per second, measured in the same run.
    """

    step_seconds: float
    step_seconds_quartiles: tuple[float, float]
    call_seconds: float
    step_bytes: int
    bandwidth: float

    @property
    def share(self) -> float:
        """The minimum time that memory allows, as a share of the measured time."""
        return self.step_bytes / self.bandwidth / self.step_seconds


def measure(
    program: Executable, arrays: Arrays, manifest: Manifest, bandwidth: float, repeats: int
) -> Timing:
    """Times steps from the same state, so that all repeats do the same.

    The state must have its first tokens: the step that makes these runs no layer.
    """
    arrays = {name: jax.device_put(array) for name, array in arrays.items()}
    numbers = {number: jax.device_put(np.int32(number)) for number in (1, manifest.steps)}

    def call(number: int) -> None:
        arrays.update(only(program(arrays | {"steps": numbers[number]}), "cache"))

    for number in numbers:
        call(number)
    single, many = [], []
    for _ in range(repeats):
        single.append(seconds_of(lambda: call(1)))
        many.append(seconds_of(lambda: call(manifest.steps)))
    differences = [
        (long - short) / (manifest.steps - 1) for short, long in zip(single, many, strict=True)
    ]
    step = statistics.median(differences)
    quartiles = statistics.quantiles(differences, n=4)
    size = jnp.dtype(program.graph.precision).itemsize
    return Timing(
        step_seconds=step,
        step_seconds_quartiles=(quartiles[0], quartiles[2]),
        call_seconds=statistics.median(single) - step,
        step_bytes=manifest.step_weights * size + program.graph.cache_bytes,
        bandwidth=bandwidth,
    )


def measure_bandwidth(mebibytes: int, repeats: int) -> dict[str, float]:
    """Bytes per second of simple operations on a large matrix; the fastest is the bandwidth."""
    columns = 4096
    matrix = jnp.ones((mebibytes * 2**20 // (4 * columns), columns), jnp.float32)
    probes = {
        "copy": (jax.jit(lambda x: x + 1), [matrix], 2),
        "sum": (jax.jit(jnp.sum), [matrix], 1),
        "product": (jax.jit(jnp.matmul), [matrix, jnp.ones(columns, jnp.float32)], 1),
    }
    bandwidths = {}
    for name, (function, operands, passes) in probes.items():

        def call(function: Any = function, operands: list[Any] = operands) -> None:
            jax.block_until_ready(function(*operands))

        call()
        bandwidths[name] = passes * matrix.nbytes / min(seconds_of(call) for _ in range(repeats))
    return bandwidths

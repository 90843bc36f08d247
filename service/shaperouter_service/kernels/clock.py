"""The clock of the device that runs a graph, read at both ends of the graph.

The host's clock measures a call: giving the device its work, computing, and fetching the results.
On a CPU that is the time of the graph. On a GPU the first and the last can take longer than the
graph does, so the GPU reads its own clock, with a kernel of one thread at each end.
"""

import functools
import time
from collections.abc import Sequence

import structlog
import tensorflow as tf

from shaperouter_service.kernels.custom_calls import native_call
from shaperouter_service.kernels.library import KernelsUnavailableError, register

log = structlog.get_logger(__name__)

# Rows of the square matrices that the self-check multiplies.
_SIZE = 256


def clock_platform() -> str | None:
    """The platform whose clock graphs of this process read, by its name in XLA.

    Returns:
        None if they read none: on a CPU, whose clock is the host's; and on a GPU whose clock cannot
        be read, of which the log says why.
    """
    return _found_platform()


@functools.cache
def _found_platform() -> str | None:
    if not tf.config.list_physical_devices("GPU"):
        return None
    try:
        check_clock("CUDA")
    except KernelsUnavailableError as error:
        log.warning(
            "the GPU's clock cannot be read",
            reason=str(error),
            effect="device times are the host's: too long, most of all on small models",
        )
        return None
    return "CUDA"


def check_clock(platform: str) -> None:
    """Measures a small graph by the clock of a platform.

    Raises:
        KernelsUnavailableError: The clock cannot be read, or is not right; the message says why.
    """
    register()

    def measured(x: tf.Tensor) -> tf.Tensor:
        (x,), began = start_clock([x], platform)
        return nanoseconds_since(began, [x @ x], platform)

    function = tf.function(measured, jit_compile=True, autograph=False)
    x = tf.ones([_SIZE, _SIZE])
    try:
        function(x).numpy()  # Compiles it, and loads the kernel.
        host_began = time.perf_counter_ns()
        nanoseconds = int(function(x).numpy())
        host_nanoseconds = time.perf_counter_ns() - host_began
    except tf.errors.OpError as error:
        raise KernelsUnavailableError(error.message) from error
    if not 0 < nanoseconds <= host_nanoseconds:
        raise KernelsUnavailableError(
            f"it measured {nanoseconds} ns of a call that took the host {host_nanoseconds} ns"
        )


def start_clock(inputs: Sequence[tf.Tensor], platform: str) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Reads the clock before anything that depends on the inputs.

    Args:
        inputs: What the computation to measure takes. At least one.
        platform: The platform that the graph runs on, by its name in XLA.

    Returns:
        The same inputs, and the time, [1] int64 in nanoseconds since an arbitrary moment.
    """
    nanoseconds, read = _read_clock(inputs, platform)
    # XLA does not know that the flag is always true, so it orders all that follows.
    return [tf.where(read[0], x, tf.zeros_like(x)) for x in inputs], nanoseconds


def nanoseconds_since(began: tf.Tensor, results: Sequence[tf.Tensor], platform: str) -> tf.Tensor:
    """Reads the clock again, after the results.

    Args:
        began: The time from `start_clock`.
        results: What was computed. At least one.
        platform: As before.

    Returns:
        int64, the difference in nanoseconds.
    """
    nanoseconds, _ = _read_clock(results, platform)
    return (nanoseconds - began)[0]


def _read_clock(after: Sequence[tf.Tensor], platform: str) -> tuple[tf.Tensor, tf.Tensor]:
    specs = [tf.TensorSpec([1], tf.int64), tf.TensorSpec([1], tf.bool)]
    nanoseconds, read = native_call("shaperouter_clock", after, specs, kept=2, platform=platform)
    return nanoseconds, read

"""Native CPU kernels, called by graphs: products, attention, norms, softmax and sampling.

XLA's own products take 1.5 to 2.5 times as long as reading the weights, and cannot use weights of
fewer bits than it computes with. XLA's attention reads all positions of a cache, used or not. Norms
and sampling took two fifths of the time to trace and compile a decode graph. This package contains
the native library (built when the service is installed), the layout of its weights, and the
operations that call it. Without the library, XLA computes all of it. `native/README.md` explains
how the kernels work.
"""

from shaperouter_service.kernels.aligned import aligned, as_aligned
from shaperouter_service.kernels.clock import clock_platform, nanoseconds_since, start_clock
from shaperouter_service.kernels.custom_calls import (
    Activation,
    attend,
    attend_tokens,
    embed,
    linear,
    look_up,
    norm,
    perturb,
    softmax_sums,
    sum_tokens,
    truncate,
)
from shaperouter_service.kernels.library import VERSION, KernelsUnavailableError
from shaperouter_service.kernels.panels import Panels, pack
from shaperouter_service.kernels.selection import KernelsChoice, choose

__all__ = [
    "VERSION",
    "Activation",
    "KernelsChoice",
    "KernelsUnavailableError",
    "Panels",
    "aligned",
    "as_aligned",
    "attend",
    "attend_tokens",
    "choose",
    "clock_platform",
    "embed",
    "linear",
    "look_up",
    "nanoseconds_since",
    "norm",
    "pack",
    "perturb",
    "softmax_sums",
    "start_clock",
    "sum_tokens",
    "truncate",
]

"""Native CPU kernels, called by graphs, for products of few rows and attention of few queries.

XLA's own products take 1.5 to 2.5 times as long as reading the weights, and cannot use weights of
fewer bits than it computes with. XLA's attention reads all positions of a cache, used or not. This
package contains the native library (built when the service is installed), the layout of its
weights, and the operations that call it. Without the library, XLA computes both.
`native/README.md` explains how the kernels work.
"""

from shaperouter_service.kernels.aligned import aligned, as_aligned
from shaperouter_service.kernels.clock import clock_platform, nanoseconds_since, start_clock
from shaperouter_service.kernels.custom_calls import (
    Activation,
    add_norm,
    attend,
    attend_tokens,
    embed,
    linear,
    look_up,
    sum_tokens,
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
    "add_norm",
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
    "pack",
    "start_clock",
    "sum_tokens",
]

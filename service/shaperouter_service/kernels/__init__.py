"""Products of few rows and attention of few queries on a CPU, by native code that graphs call.

XLA's own products take 1.5 to 2.5 times what reading the weights does, and know no weights of fewer
bits than it computes with; its attention reads all that a cache has room for. This room has the
library (`native`, built when the service is installed), the weights in its layout, and the
operations that call it; where it is missing, whoever asks is told why, and leaves both to XLA.
`native/README.md` tells how it works.
"""

from shaperouter_service.kernels.aligned import aligned, as_aligned
from shaperouter_service.kernels.calls import Activation, attend, linear, look_up
from shaperouter_service.kernels.choosing import KernelsChoice, choose
from shaperouter_service.kernels.library import VERSION, KernelsUnavailableError
from shaperouter_service.kernels.panels import Panels, pack

__all__ = [
    "VERSION",
    "Activation",
    "KernelsChoice",
    "KernelsUnavailableError",
    "Panels",
    "aligned",
    "as_aligned",
    "attend",
    "choose",
    "linear",
    "look_up",
    "pack",
]

"""Limits of the models that are loaded when requests name them."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class OnDemandLimits:
    """What may be loaded on demand, and for how long.

    Attributes:
        max_bytes: Maximum memory of the weights of all models loaded on demand, on each worker.
        idle_seconds: Seconds without a request after which such a model is unloaded; None to
            unload it only when another one needs its memory.
    """

    max_bytes: int
    idle_seconds: float | None = None

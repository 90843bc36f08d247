"""The workloads: sources and options, drawn from a seed."""

import numpy as np
from generation.workloads import BEAMS, Kind, Workload

from .checkpoint import SPECIAL, VOCABULARY

SEED = 1
SOURCE_LENGTHS = (16, 128)


def workloads() -> list[Workload]:
    """All workloads, in order."""
    rng = np.random.default_rng(SEED)
    sources = {
        length: rng.integers(len(SPECIAL), VOCABULARY, size=(1, length)).tolist()
        for length in SOURCE_LENGTHS
    }
    return [
        Workload(
            name=f"{kind}-{length}",
            label=f"{label}, source {length}",
            kind=kind,
            prompts=sources[length],
            options=options,
        )
        for kind, label, options in (
            (Kind.GREEDY, "greedy", {}),
            (Kind.BEAMS, f"{BEAMS} beams", {"num_beams": BEAMS}),
        )
        for length in SOURCE_LENGTHS
    ]

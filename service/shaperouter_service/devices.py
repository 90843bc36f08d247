"""What this machine has to compute with, as far as it can be told without TensorFlow."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def visible_gpus(environment: Mapping[str, str], devices: Path = Path("/dev")) -> Sequence[str]:
    """NVIDIA GPUs, as CUDA_VISIBLE_DEVICES names them.

    Args:
        environment: If it has that variable, only what it names counts. As for CUDA, the list ends
            at an empty or negative name.
        devices: Where the driver puts a file for each GPU. Containers see those of their own.
    """
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        files = [file for file in devices.iterdir() if re.fullmatch(r"nvidia\d+", file.name)]
        return [str(index) for index in range(len(files))]
    names = []
    for name in (part.strip() for part in listed.split(",")):
        if not name or name.startswith("-"):
            break
        names.append(name)
    return names

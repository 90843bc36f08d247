"""The machine and time of a measurement."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# Processor features that decide the speed of matrix products.
VECTOR_FLAGS = ("avx2", "fma", "f16c", "avx512", "avx_vnni", "amx")


def conditions() -> dict[str, Any]:
    """The machine and time of a measurement."""
    cpu: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        cpu[name.strip()] = value.strip()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "cpu": cpu.get("model name", platform.processor()),
        "cpu_flags": [
            flag for flag in cpu.get("flags", "").split() if flag.startswith(VECTOR_FLAGS)
        ],
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "system": platform.system(),
        "load_before": os.getloadavg()[0],
    }

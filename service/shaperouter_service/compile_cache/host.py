"""The processor that executables are compiled for."""

import os
import platform
from pathlib import Path
from typing import Any

# What Linux says of x86 and of ARM processors that decides which code runs, and runs fast.
_FIELDS = {
    "vendor_id",
    "cpu family",
    "model",
    "flags",
    "CPU implementer",
    "CPU architecture",
    "CPU variant",
    "CPU part",
    "Features",
}


def processor() -> dict[str, Any]:
    """What is known of it: code for a newer one crashes, and code for more cores is slower."""
    return {
        "machine": platform.machine(),
        "cores": _cores(),
        **_fields(Path("/proc/cpuinfo")),
    }


def _fields(cpuinfo: Path) -> dict[str, str]:
    """What the first processor's lines say."""
    try:
        first = cpuinfo.read_text(encoding="utf-8").split("\n\n")[0]
    except OSError:
        return {"processor": platform.processor()}
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    found = {name.strip(): " ".join(value.split()) for name, value in pairs}
    return {name: found[name] for name in sorted(_FIELDS & found.keys())}


def _cores() -> int:
    # Those that TensorFlow's threads may use, and that XLA divides work between.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

"""Keys: everything that compiled graphs of a model depend on, besides their signatures."""

import hashlib
import json
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shaperouter_service.system.devices import usable_cores

# Fields of /proc/cpuinfo, on x86 and ARM, that decide which code runs and which runs fast.
_PROCESSOR_FIELDS = {
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


@dataclass(frozen=True, kw_only=True)
class CacheKey:
    """Identifies the graphs of a model; graphs of equal keys are interchangeable.

    Attributes:
        label: Beginning of the directory's name, for people.
        parts: What the graphs depend on, as JSON.
    """

    label: str
    parts: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """Digest of the parts: 16 hexadecimal digits."""
        text = json.dumps(self.parts, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @property
    def name(self) -> str:
        """Name of the directory."""
        return f"{self.label}-{self.digest}"

    @staticmethod
    def label_of(directory: str) -> str:
        """The label that a directory's name begins with."""
        return directory.rpartition("-")[0]

    @staticmethod
    def is_name(directory: str) -> bool:
        """Whether a directory is named like a section of the cache."""
        return re.fullmatch(r"[\w.-]+-[0-9a-f]{16}", directory) is not None


def machine() -> dict[str, Any]:
    """The architecture of the processor as a part of keys."""
    return {"machine": platform.machine()}


def processor() -> dict[str, Any]:
    """The processor as a part of keys.

    Code for a newer processor crashes, and code for more cores is slower.
    """
    return {
        **machine(),
        "cores": usable_cores(),
        **_fields(Path("/proc/cpuinfo")),
    }


def _fields(cpuinfo: Path) -> dict[str, str]:
    """The fields of the first processor."""
    try:
        first = cpuinfo.read_text(encoding="utf-8").split("\n\n")[0]
    except OSError:
        return {"processor": platform.processor()}
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    found = {name.strip(): " ".join(value.split()) for name, value in pairs}
    return {name: found[name] for name in sorted(_PROCESSOR_FIELDS & found.keys())}

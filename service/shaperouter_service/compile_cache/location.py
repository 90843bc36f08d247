"""Where the compile cache is unless told, and where in it traffic is recorded."""

import os
from pathlib import Path


def default_directory() -> Path | None:
    """In the user's cache home; None if there is no home."""
    if home := os.environ.get("XDG_CACHE_HOME"):
        return Path(home) / "shaperouter"
    try:
        return Path.home() / ".cache" / "shaperouter"
    except RuntimeError:
        return None


def record_directory(cache: Path) -> Path:
    """The directory of the record of traffic, beside the graphs of a compile cache."""
    return cache / "traffic"

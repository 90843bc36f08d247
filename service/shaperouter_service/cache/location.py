"""Where the compile cache is unless told."""

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

"""The cache's directory: its default place, and whether others could have put code into it."""

import os
import stat
from pathlib import Path


def default_directory() -> Path | None:
    """The directory in the user's cache home; None if there is no home."""
    if home := os.environ.get("XDG_CACHE_HOME"):
        return Path(home) / "shaperouter"
    try:
        return Path.home() / ".cache" / "shaperouter"
    except RuntimeError:
        return None


def record_directory(cache: Path) -> Path:
    """The directory of the record of traffic, inside a compile cache."""
    return cache / "traffic"


def digests_directory(cache: Path) -> Path:
    """The directory of the digests of models, inside a compile cache."""
    return cache / "digests"


def danger(status: os.stat_result) -> str | None:
    """Why a directory may contain code of other users; None if it cannot.

    Args:
        status: Status of the directory.
    """
    us = os.geteuid()
    if status.st_uid not in (0, us):
        return f"it belongs to user {status.st_uid}, and neither to root nor to us, user {us}"
    if status.st_mode & stat.S_IWOTH:
        return "all users can write to it"
    return None


def is_group_writable(status: os.stat_result) -> bool:
    """Whether a group can write to a directory."""
    return bool(status.st_mode & stat.S_IWGRP)


def mode(status: os.stat_result) -> str:
    """The permissions in chmod's notation."""
    return f"{stat.S_IMODE(status.st_mode):04o}"

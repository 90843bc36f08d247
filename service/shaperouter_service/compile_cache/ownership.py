"""Who can write to the directory of the cache: what lies there is code that workers run."""

import os
import stat


def danger(status: os.stat_result) -> str | None:
    """Why a directory may have code of anybody; None if it may not.

    Args:
        status: Of the directory.
    """
    us = os.geteuid()
    if status.st_uid not in (0, us):
        return f"it belongs to user {status.st_uid}, and neither to root nor to us, user {us}"
    if status.st_mode & stat.S_IWOTH:
        return "all users can write to it"
    return None


def is_shared(status: os.stat_result) -> bool:
    """Whether a group can write to a directory."""
    return bool(status.st_mode & stat.S_IWGRP)


def mode(status: os.stat_result) -> str:
    """The permissions, as chmod takes them."""
    return f"{stat.S_IMODE(status.st_mode):04o}"

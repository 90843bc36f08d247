"""Finds what outlives the service: processes, sockets and files."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

# Seconds in which children of an ended process end, too.
_PATIENCE = 10.0


def leftovers(mark: str, directories: Sequence[Path]) -> list[str]:
    """Describes everything that is left; empty if there is nothing.

    Args:
        mark: A variable that all processes of the service have.
        directories: Directories that should be empty.
    """
    deadline = time.monotonic() + _PATIENCE
    while (processes := list(_processes(mark))) and time.monotonic() < deadline:
        time.sleep(0.1)
    files = (path for directory in directories for path in directory.rglob("*"))
    return [*processes, *(f"file {path}" for path in files)]


def _processes(mark: str) -> Iterator[str]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and mark in process.environ():
                yield f"process {process.pid}: {' '.join(process.cmdline())}"

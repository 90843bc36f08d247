"""Memory that a process may still get: bounded by its control group, or by its limits."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil

from harness.waiting import wait_until

# Bytes that a process may get beyond what it has.
_LEFT = 8 << 20
_ROOT = Path("/sys/fs/cgroup/memory")


def own_group() -> Path | None:
    """This process's group of the memory controller; None if no groups can be made in it.

    Only version 1 of control groups: in version 2, a group with processes can have no groups.
    """
    lines = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    paths = [line.split(":", 2)[2] for line in lines if ":memory:" in line]
    group = _ROOT / paths[0].removeprefix("/") if paths else _ROOT / "none"
    return group if os.access(group / "cgroup.procs", os.W_OK) else None


@contextlib.contextmanager
def exhausted(pid: int, name: str) -> Iterator[None]:
    """Inside of the context, the system kills the process once it needs some more memory."""
    own = own_group()
    assert own is not None
    # Another campaign may run beside this one, with processes of the same names.
    group = Path(tempfile.mkdtemp(prefix=f"chaos-{name}-", dir=own))
    try:
        # What it has stays charged to the group that it comes from.
        (group / "memory.limit_in_bytes").write_text(str(_LEFT))
        with contextlib.suppress(OSError):
            (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for member in (group / "cgroup.procs").read_text(encoding="ascii").split():
            # It may have ended meanwhile.
            with contextlib.suppress(OSError):
                (own / "cgroup.procs").write_text(member)
        # A process that was killed is counted until it is gone.
        wait_until(lambda: not (group / "cgroup.procs").read_text(encoding="ascii"), timeout=10)
        group.rmdir()


def bound(process: psutil.Process, until: threading.Event) -> None:
    """Until the event is set, the process gets an error once it asks for some more memory."""
    limits = process.rlimit(psutil.RLIMIT_AS)
    process.rlimit(psutil.RLIMIT_AS, (process.memory_info().vms + _LEFT, limits[1]))
    until.wait()
    process.rlimit(psutil.RLIMIT_AS, limits)

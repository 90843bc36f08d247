"""Workers with a part of a core each, so that several of them do not disturb each other."""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup/cpu")
# Microseconds after which a process that has used its part may continue. Kubernetes has 100 ms, in
# which a worker would compute many steps at full speed and then none. After 5 ms it is like a
# slower processor.
_PERIOD = 5_000


@contextlib.contextmanager
def limited(pids: Sequence[int], cores: float) -> Iterator[None]:
    """Inside of the context, each process gets at most this part of a core.

    Raises:
        OSError: No control groups of version 1 can be made, which needs root.
    """
    with contextlib.ExitStack() as stack:
        for pid in pids:
            stack.enter_context(_limited(pid, cores))
        yield


@contextlib.contextmanager
def _limited(pid: int, cores: float) -> Iterator[None]:
    group = Path(tempfile.mkdtemp(prefix="simulation-", dir=_ROOT))
    try:
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD))
        (group / "cpu.cfs_quota_us").write_text(str(int(cores * _PERIOD)))
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for member in (group / "cgroup.procs").read_text(encoding="ascii").split():
            (_ROOT / "cgroup.procs").write_text(member)
        group.rmdir()

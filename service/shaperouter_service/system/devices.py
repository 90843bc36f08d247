"""Cores, GPUs and memory of this machine, detected without TensorFlow."""

import contextlib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


def usable_cores() -> int:
    """Number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def visible_gpus(environment: Mapping[str, str], devices: Path = Path("/dev")) -> Sequence[str]:
    """NVIDIA GPUs, as CUDA_VISIBLE_DEVICES names them.

    Args:
        environment: Environment variables. CUDA_VISIBLE_DEVICES, if set, restricts the GPUs; as for
            CUDA, its list ends at an empty or negative name.
        devices: Directory in which the driver creates a file for each GPU. A container sees its
            own.
    """
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        files = [file for file in devices.iterdir() if re.fullmatch(r"nvidia\d+", file.name)]
        return [str(index) for index in range(len(files))]
    names = []
    for name in (part.strip() for part in listed.split(",")):
        if not name or name.startswith("-"):
            break
        names.append(name)
    return names


class _Files(NamedTuple):
    """Names of a memory control group's files.

    Attributes:
        limit: File with the limit.
        used: File with the memory in use, including cached files.
        cached: Lines of memory.stat that add up to cached files, which the system frees if memory
            is short.
    """

    limit: str
    used: str
    cached: Collection[str]


_VERSION_1 = _Files(
    limit="memory.limit_in_bytes",
    used="memory.usage_in_bytes",
    cached=("total_inactive_file", "total_active_file"),
)
_VERSION_2 = _Files(
    limit="memory.max", used="memory.current", cached=("inactive_file", "active_file")
)

_OWN, _GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def memory_limit(own: Path = _OWN, groups: Path = _GROUPS) -> int | None:
    """Memory limit of this process's control groups, in bytes: a container's limit.

    Args:
        own: File that names the process's groups, one line for each hierarchy.
        groups: Mount point of the hierarchies.

    Returns:
        The lowest limit of the process's group and those above it; None if none has a limit.
    """
    limits = (_limit(group / files.limit) for group, files in _memory_groups(own, groups))
    return min((limit for limit in limits if limit is not None), default=None)


def memory_left(own: Path = _OWN, groups: Path = _GROUPS) -> int | None:
    """Memory left below the container's limit, in bytes; None if it has no limit.

    Args:
        own: As for `memory_limit`.
        groups: As for `memory_limit`.
    """
    left: list[int] = []
    for group, files in _memory_groups(own, groups):
        if (limit := _limit(group / files.limit)) is not None:
            with contextlib.suppress(OSError, ValueError):
                left.append(max(0, limit - _used(group, files)))
    return min(left, default=None)


def _memory_groups(own: Path, groups: Path) -> Iterator[tuple[Path, _Files]]:
    """The directories of this process's memory control groups and of the groups above them."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:  # not on Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2: one hierarchy for everything
            mount, files = groups, _VERSION_2
        elif "memory" in controllers.split(","):
            mount, files = groups / "memory", _VERSION_1
        else:
            continue
        # A container may see only its own group, at the mount, although its path is that on the
        # host.
        group = mount / path.lstrip("/")
        for directory in (group, *group.parents):
            if directory.is_relative_to(mount):
                yield directory, files


# Value of version 1 without a limit: the largest number of bytes in whole pages.
_UNLIMITED = 2**63 - 2**16


def _limit(file: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):  # no such group, or "max"
        limit = int(file.read_text(encoding="utf-8"))
        if limit < _UNLIMITED:
            return limit
    return None


def _used(group: Path, files: _Files) -> int:
    lines = (group / "memory.stat").read_text(encoding="utf-8").splitlines()
    amounts = dict(line.split() for line in lines)
    cached = sum(int(amounts.get(name, 0)) for name in files.cached)
    return int((group / files.used).read_text(encoding="utf-8")) - cached

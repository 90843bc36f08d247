"""The compile cache as a whole: a directory of sections, kept below a size."""

import contextlib
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import structlog

from shaperouter_service.compile_cache import checksummed_file
from shaperouter_service.compile_cache.checksummed_file import DamagedFileError
from shaperouter_service.compile_cache.directory import danger, is_group_writable, mode
from shaperouter_service.compile_cache.disk import FAILURES, Disk, DiskTimeoutError
from shaperouter_service.compile_cache.key import CacheKey
from shaperouter_service.compile_cache.section import KEY_FILE, Part, Section, remove
from shaperouter_service.routing.decay import share_left
from shaperouter_service.system.files import (
    UNFINISHED,
    open_regular,
    read_regular,
    write_atomically,
)

log = structlog.get_logger(__name__)

# Time after which unfinished files are removed: their writer was killed, as no write takes longer.
UNFINISHED_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A graph in the cache.

    Attributes:
        section: Name of its section's directory.
        graph: Name of the graph.
        paths: Its files.
        bytes: Size of its files.
        seconds: Time that making it took, which a worker that loads it saves.
        created: When its newest file was written, in seconds since 1970.
        used: When it was last written or loaded, in seconds since 1970.
    """

    section: str
    graph: str
    paths: tuple[Path, ...]
    bytes: int
    seconds: float
    created: float
    used: float

    def value(self, now: float) -> float:
        """Seconds saved per byte; decays while it is not used."""
        return self.seconds * share_left(now - self.used) / max(1, self.bytes)


class CompileCache:
    """A directory of compiled graphs, shared by any number of processes.

    Attributes:
        directory: Path of the directory.
        max_bytes: Maximum size; above it, the least valuable graphs are removed.
        writable: Whether graphs can be written.
        disk: Runs operations on its files.
    """

    def __init__(
        self,
        directory: Path,
        *,
        max_bytes: int,
        writable: bool = True,
        disk: Disk | None = None,
    ) -> None:
        """Creates nothing; see `open`."""
        self.directory = directory
        self.max_bytes = max_bytes
        self.writable = writable
        self.disk = disk or Disk()
        self._evicting = threading.Lock()
        self._failed = False

    @classmethod
    def open(cls, directory: Path, *, max_bytes: int, disk: Disk | None = None) -> Self | None:
        """Opens a cache, whose directory is created if it is missing.

        Warns if the directory can only be read. Warns and returns None if it cannot be read, or if
        other users could have put code into it.
        """
        disk = disk or Disk()
        try:
            return disk.run(lambda: cls._open(directory, max_bytes, disk))
        except DiskTimeoutError:
            return None

    @classmethod
    def _open(cls, directory: Path, max_bytes: int, disk: Disk) -> Self | None:
        with contextlib.suppress(OSError):
            # Workers run the code in it, so it must be inaccessible to other users.
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            status = directory.stat()
            next(directory.iterdir(), None)
        except OSError as error:
            log.warning("no compile cache: its directory can't be read", reason=str(error))
            return None
        about = {
            "directory": str(directory),
            "owner": status.st_uid,
            "mode": mode(status),
        }
        if reason := danger(status):
            log.warning(
                "no compile cache: others may have put code into its directory",
                reason=reason,
                fix="make it ours alone (chown, chmod go-w), or name a new directory within",
                **about,
            )
            return None
        if is_group_writable(status):
            log.warning(
                "a group can write to the compile cache, and workers run the code in it", **about
            )
        try:
            write_atomically(directory / TAG_FILE, _TAG)
        except OSError as error:
            log.warning(
                "the compile cache is read-only: its directory can't be written", reason=str(error)
            )
            return cls(directory, max_bytes=max_bytes, writable=False, disk=disk)
        return cls(directory, max_bytes=max_bytes, disk=disk)

    @property
    def exists(self) -> bool:
        """Whether the directory is one that a worker has used as its cache."""
        with contextlib.suppress(OSError), open_regular(self.directory / TAG_FILE) as file:
            if file.read(len(_TAG)) == _TAG:
                return True
        # A worker that could only read it left no tag.
        return any((section / KEY_FILE).is_file() for section in self._sections())

    def section(self, key: CacheKey) -> Section:
        """The section with the graphs of a key."""
        return Section(
            self.directory / key.name,
            key,
            disk=self.disk,
            writable=self.writable,
            on_written=self.evict,
            on_failure=self._fail,
        )

    def key_parts(self, section: str) -> Mapping[str, Any]:
        """The parts of a section's key; empty if they are unknown."""
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(read_regular(self.directory / section / KEY_FILE))
            if isinstance(found, dict):
                return found
        return {}

    def changed_parts(self, key: CacheKey) -> list[str]:
        """Explains why a key has no section: its parts that differ from the most similar section's.

        Considers sections with the same label. Empty if there is none, or if the key has a section.
        """
        try:
            return self.disk.run(lambda: self._changed_parts(key))
        except FAILURES:
            return []

    def _changed_parts(self, key: CacheKey) -> list[str]:
        if (self.directory / key.name).is_dir():
            return []
        parts = json.loads(json.dumps(key.parts))
        similar = (
            path.name for path in self._sections() if CacheKey.label_of(path.name) == key.label
        )
        known = filter(None, map(self.key_parts, similar))
        changes = ([name for name in parts if parts[name] != each.get(name)] for each in known)
        return min(changes, key=len, default=[])

    def files(self) -> Iterator[Path]:
        """All files of graphs; none if the directory is missing."""
        for section in self._sections():
            for part in Part:
                yield from section.glob(f"*.{part}")

    def entries(self) -> list[Entry]:
        """All graphs in the cache, newest first."""
        by_graph: dict[tuple[str, str], list[Path]] = {}
        for path in self.files():
            by_graph.setdefault((path.parent.name, path.stem), []).append(path)
        entries = [_entry(section, graph, paths) for (section, graph), paths in by_graph.items()]
        return sorted(entries, key=lambda entry: entry.created, reverse=True)

    def damaged_files(self) -> Iterator[tuple[Path, str]]:
        """Reads every file; yields the damaged ones with the reason."""
        for path in self.files():
            try:
                checksummed_file.read(path)
            except FileNotFoundError:
                continue
            except (DamagedFileError, OSError) as error:
                yield path, str(error)

    def remove(self, entries: Iterable[Entry]) -> int:
        """Removes entries, and sections without any; returns the bytes freed."""
        freed = 0
        for entry in entries:
            for path in entry.paths:
                size = _size(path)
                remove(path)
                freed += size - _size(path)
            directory = self.directory / entry.section
            with contextlib.suppress(OSError):
                if [path.name for path in directory.iterdir()] == [KEY_FILE]:
                    remove(directory / KEY_FILE)
                    directory.rmdir()
        return freed

    def evict(self) -> None:
        """Removes unfinished files, and the least valuable graphs above the maximum size.

        Does nothing while another thread does it.
        """
        # Waiting for the other thread would count as waiting for the disk.
        if self._evicting.acquire(blocking=False):
            try:
                with contextlib.suppress(*FAILURES):
                    self.disk.run(self._evict)
            finally:
                self._evicting.release()

    def _evict(self) -> None:
        now = time.time()
        for section in self._sections():
            for path in section.glob(UNFINISHED):
                with contextlib.suppress(OSError):
                    if now - path.stat().st_mtime > UNFINISHED_SECONDS:
                        path.unlink()
        if sum(map(_size, self.files())) > self.max_bytes:
            self.remove(least_valuable(self.entries(), self.max_bytes, now))

    def _sections(self) -> list[Path]:
        # Only directories named like sections: others may not be ours to remove.
        with contextlib.suppress(OSError):
            return sorted(path for path in self.directory.iterdir() if CacheKey.is_name(path.name))
        return []

    def _fail(self, error: OSError | MemoryError) -> None:
        if not self._failed:
            self._failed = True
            log.warning(
                "the compile cache could not be written: compiled graphs are not kept",
                directory=str(self.directory),
                reason=str(error) or type(error).__name__,
            )


def least_valuable(entries: Iterable[Entry], max_bytes: int, now: float) -> list[Entry]:
    """The least valuable entries, without which the others take at most `max_bytes`."""
    ordered = sorted(entries, key=lambda entry: entry.value(now))
    excess = sum(entry.bytes for entry in ordered) - max_bytes
    removed = []
    for entry in ordered:
        if excess <= 0:
            break
        removed.append(entry)
        excess -= entry.bytes
    return removed


# Tells backup programs to leave the directory out; see https://bford.info/cachedir/.
TAG_FILE = "CACHEDIR.TAG"
_TAG = b"Signature: 8a477f597d28d172789f06886806bc55\n# Compiled graphs of Shaperouter.\n"


def _entry(section: str, graph: str, paths: list[Path]) -> Entry:
    seconds = created = used = 0.0
    for path in paths:
        # A damaged file saves nothing.
        with contextlib.suppress(DamagedFileError, OSError):
            header = checksummed_file.read_header(path)
            seconds += header.seconds
            created = max(created, header.created)
            used = max(used, path.stat().st_mtime)
    return Entry(
        section=section,
        graph=graph,
        paths=tuple(paths),
        bytes=sum(map(_size, paths)),
        seconds=seconds,
        created=created,
        used=used,
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0

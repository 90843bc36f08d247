"""The compile cache as a whole: a directory of sections, kept below a size."""

import contextlib
import json
import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import structlog

from shaperouter_service.compile_cache import ownership, sealed
from shaperouter_service.compile_cache.disk import Disk, DiskHangsError
from shaperouter_service.compile_cache.key import CacheKey
from shaperouter_service.compile_cache.sealed import DamagedFileError
from shaperouter_service.compile_cache.section import KEY_FILE, Part, Section, remove
from shaperouter_service.system.files import open_regular, read_regular

log = structlog.get_logger(__name__)

# A graph that was not used for so long is worth half.
HALF_LIFE_SECONDS = 7 * 24 * 3600.0

# What a writer leaves if it is killed goes after so long: no writing takes longer.
UNFINISHED_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What is kept of a graph.

    Attributes:
        section: Name of the directory.
        graph: Its name.
        paths: Of its files.
        bytes: Of these.
        seconds: How long it took to make: what a worker saves that loads it.
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
        """What keeping it is worth: seconds saved for each byte, less the longer it was unused."""
        unused = max(0.0, now - self.used)
        return self.seconds * math.exp2(-unused / HALF_LIFE_SECONDS) / max(1, self.bytes)


class CompileCache:
    """A directory of compiled graphs, shared by any number of processes.

    Attributes:
        directory: Where it is.
        max_bytes: Above this, what is worth least is removed.
        writable: Whether anything can be kept.
    """

    def __init__(
        self,
        directory: Path,
        *,
        max_bytes: int,
        writable: bool = True,
        disk: Disk | None = None,
    ) -> None:
        """Names it; see `open`."""
        self.directory = directory
        self.max_bytes = max_bytes
        self.writable = writable
        self._disk = disk or Disk()
        self._making_room = threading.Lock()
        self._failed = False

    @classmethod
    def open(cls, directory: Path, *, max_bytes: int, disk: Disk | None = None) -> Self | None:
        """Makes the directory if it is missing, and finds out what can be done with it.

        Says so in a warning if it can only be read. Returns None, with a warning, if it can't, or
        if anybody may have put code there.
        """
        disk = disk or Disk()
        try:
            return disk.run(lambda: cls._open(directory, max_bytes, disk))
        except DiskHangsError:
            return None

    @classmethod
    def _open(cls, directory: Path, max_bytes: int, disk: Disk) -> Self | None:
        with contextlib.suppress(OSError):
            # It holds code that workers will run: others have no business there.
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
            "mode": ownership.mode(status),
        }
        if danger := ownership.danger(status):
            log.warning(
                "no compile cache: others may have put code into its directory",
                reason=danger,
                remedy="make it ours alone (chown, chmod go-w), or name a new directory within",
                **about,
            )
            return None
        if ownership.is_shared(status):
            log.warning(
                "a group can write to the compile cache, and workers run the code in it", **about
            )
        try:
            sealed.replace(directory / TAG_FILE, _TAG)
        except OSError as error:
            log.warning("the compile cache is only read: it can't be written", reason=str(error))
            return cls(directory, max_bytes=max_bytes, writable=False, disk=disk)
        return cls(directory, max_bytes=max_bytes, disk=disk)

    @property
    def exists(self) -> bool:
        """Whether the directory is one that a worker has used as its cache."""
        with contextlib.suppress(OSError), open_regular(self.directory / TAG_FILE) as file:
            if file.read(len(_TAG)) == _TAG:
                return True
        # Without the mark, where a worker could only read.
        return any((section / KEY_FILE).is_file() for section in self._sections())

    def section(self, key: CacheKey) -> Section:
        """The graphs of a key."""
        return Section(
            self.directory / key.name,
            key,
            disk=self._disk,
            writable=self.writable,
            on_written=self.make_room,
            on_failure=self._fail,
        )

    def about(self, section: str) -> Mapping[str, Any]:
        """What the key of a section was made of; empty if that is not known."""
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(read_regular(self.directory / section / KEY_FILE))
            if isinstance(found, dict):
                return found
        return {}

    def changed(self, key: CacheKey) -> list[str]:
        """Why a key has no section: its parts that are others than the most alike section's.

        Of sections with the same label; none if there is no such section, or the key has its own.
        """
        try:
            return self._disk.run(lambda: self._changed(key))
        except DiskHangsError:
            return []

    def _changed(self, key: CacheKey) -> list[str]:
        if (self.directory / key.name).is_dir():
            return []
        parts = json.loads(json.dumps(key.parts))
        alike = (
            path.name for path in self._sections() if CacheKey.label_of(path.name) == key.label
        )
        kept = filter(None, map(self.about, alike))
        changes = ([name for name in parts if parts[name] != each.get(name)] for each in kept)
        return min(changes, key=len, default=[])

    def paths(self) -> Iterator[Path]:
        """Every file of a graph; none where the directory is missing."""
        for section in self._sections():
            for part in Part:
                yield from section.glob(f"*.{part}")

    def entries(self) -> list[Entry]:
        """Everything that is kept, the newest first."""
        by_graph: dict[tuple[str, str], list[Path]] = {}
        for path in self.paths():
            by_graph.setdefault((path.parent.name, path.stem), []).append(path)
        entries = [_entry(section, graph, paths) for (section, graph), paths in by_graph.items()]
        return sorted(entries, key=lambda entry: entry.created, reverse=True)

    def damage(self) -> Iterator[tuple[Path, str]]:
        """Reads every file, and tells of those that are damaged and why."""
        for path in self.paths():
            try:
                sealed.read(path)
            except FileNotFoundError:
                continue
            except (DamagedFileError, OSError) as error:
                yield path, str(error)

    def remove(self, entries: Iterable[Entry]) -> int:
        """Removes entries, and sections that are left empty; returns the bytes of what is gone."""
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

    def make_room(self) -> None:
        """Removes what is worth least until the rest fits, and what was left half written."""
        with contextlib.suppress(DiskHangsError):
            self._disk.run(self._make_room)

    def _make_room(self) -> None:
        # One thread after the other: the second finds less to do.
        with self._making_room:
            now = time.time()
            for section in self._sections():
                for path in section.glob(sealed.UNFINISHED):
                    with contextlib.suppress(OSError):
                        if now - path.stat().st_mtime > UNFINISHED_SECONDS:
                            path.unlink()
            if sum(map(_size, self.paths())) > self.max_bytes:
                self.remove(least_valuable(self.entries(), self.max_bytes, now))

    def _sections(self) -> list[Path]:
        # Of other directories, which somebody may have put here, nothing is ours to remove.
        with contextlib.suppress(OSError):
            return sorted(path for path in self.directory.iterdir() if CacheKey.names(path.name))
        return []

    def _fail(self, error: OSError) -> None:
        if not self._failed:
            self._failed = True
            log.warning(
                "the compile cache could not be written: compiled graphs are not kept",
                directory=str(self.directory),
                reason=str(error),
            )


def least_valuable(entries: Iterable[Entry], max_bytes: int, now: float) -> list[Entry]:
    """The entries to remove so that the rest take at most so many bytes."""
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
        # What is damaged saves nothing.
        with contextlib.suppress(DamagedFileError, OSError):
            header = sealed.read_header(path)
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

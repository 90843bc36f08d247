"""A section of the cache: the graphs of one key, in one directory."""

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import structlog

from shaperouter_service.compile_cache import sealed
from shaperouter_service.compile_cache.disk import Disk, DiskHangsError
from shaperouter_service.compile_cache.key import CacheKey
from shaperouter_service.compile_cache.sealed import DamagedFileError, Sealed
from shaperouter_service.system.files import read_regular

log = structlog.get_logger(__name__)

# Says what the key was made of, for people and for `shaperouterd cache list`.
KEY_FILE = "key.json"


class Part(StrEnum):
    """What is kept of a graph: the suffix of its file's name."""

    # The graph as StableHLO: with it, nothing is traced.
    MODULE = "module"
    # The machine code: with both, nothing is compiled.
    EXECUTABLE = "executable"


class Section:
    """The graphs of one key.

    Nothing here fails for the state of a disk: what can't be read is not there, and what can't be
    written is not kept. Any number of threads and processes may read and write at a time.
    """

    def __init__(
        self,
        directory: Path,
        key: CacheKey,
        *,
        disk: Disk,
        writable: bool,
        on_written: Callable[[], None],
        on_failure: Callable[[OSError], None],
    ) -> None:
        """Names it; nothing is made yet.

        Args:
            directory: Its own.
            key: What it is for.
            disk: Runs what is done with files.
            writable: Whether to try to write.
            on_written: Called after a file has been written.
            on_failure: Called if one could not be.
        """
        self.key = key
        self._directory = directory
        self._disk = disk
        self._writable = writable
        self._on_written = on_written
        self._on_failure = on_failure

    def has(self, graph: str) -> bool:
        """Whether a graph is kept, as far as can be seen without reading it."""
        try:
            return self._disk.run(lambda: all(self._path(graph, part).is_file() for part in Part))
        except DiskHangsError:
            return False

    def read(self, graph: str, part: Part) -> Sealed | None:
        """Returns what is kept of a graph, and notes that it was used.

        What is damaged is logged, removed and not returned.
        """
        try:
            return self._disk.run(lambda: self._read(graph, part))
        except DiskHangsError:
            return None

    def write(
        self, graph: str, part: Part, payload: bytes, *, seconds: float, **details: Any
    ) -> None:
        """Keeps a part of a graph, if it can.

        Args:
            graph: Its name.
            part: Which.
            payload: Itself.
            seconds: How long it took to make.
            **details: What to keep with it, as JSON.
        """
        if not self._writable:
            return

        def write() -> None:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._write_key()
            path = self._path(graph, part)
            sealed.write(path, payload, graph=graph, seconds=seconds, details=details)

        try:
            self._disk.run(write)
        except OSError as error:
            self._on_failure(error)
        else:
            self._on_written()

    def drop(self, graph: str, part: Part, *, reason: str) -> None:
        """Removes a part of a graph, if it can."""
        with contextlib.suppress(DiskHangsError):
            self._disk.run(lambda: self._drop(graph, part, reason))

    def _read(self, graph: str, part: Part) -> Sealed | None:
        path = self._path(graph, part)
        try:
            found = sealed.read(path)
        except FileNotFoundError:
            return None
        except (DamagedFileError, OSError) as error:
            self._drop(graph, part, str(error))
            return None
        if self._writable:
            # The time of the last use, for eviction.
            with contextlib.suppress(OSError):
                os.utime(path)
        return found

    def _drop(self, graph: str, part: Part, reason: str) -> None:
        path = self._path(graph, part)
        log.warning("damaged file of the compile cache removed", path=str(path), reason=reason)
        if self._writable:
            remove(path)

    def _path(self, graph: str, part: Part) -> Path:
        return self._directory / f"{graph}.{part}"

    def _write_key(self) -> None:
        path = self._directory / KEY_FILE
        text = json.dumps(self.key.parts, indent=1).encode()
        with contextlib.suppress(OSError):
            if read_regular(path) == text:
                return
        sealed.replace(path, text)


def remove(path: Path) -> None:
    """Removes whatever is there, if it can."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

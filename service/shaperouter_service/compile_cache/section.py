"""A section of the cache: the directory with the graphs of one key."""

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import structlog

from shaperouter_service.compile_cache import checksummed_file
from shaperouter_service.compile_cache.checksummed_file import Contents, DamagedFileError
from shaperouter_service.compile_cache.disk import FAILURES, Disk, DiskTimeoutError
from shaperouter_service.compile_cache.key import CacheKey
from shaperouter_service.system.files import read_regular, write_atomically

log = structlog.get_logger(__name__)

# The parts of the key, for people and for `shaperouterd cache list`.
KEY_FILE = "key.json"


class Part(StrEnum):
    """A file of a graph, by the suffix of its name."""

    # The graph as StableHLO; with it, nothing is traced.
    MODULE = "module"
    # The machine code; with both files, nothing is compiled.
    EXECUTABLE = "executable"


class Section:
    """The graphs of one key.

    No method fails because of the disk, or because the process lacks what a file needs: files that
    cannot be read count as missing, and files that cannot be written are not kept. Any number of
    threads and processes may read and write.
    """

    def __init__(
        self,
        directory: Path,
        key: CacheKey,
        *,
        disk: Disk,
        writable: bool,
        on_written: Callable[[], None],
        on_failure: Callable[[OSError | MemoryError], None],
    ) -> None:
        """Creates nothing yet.

        Args:
            directory: Directory of the section.
            key: Key of its graphs.
            disk: Runs the operations on files.
            writable: Whether to try to write.
            on_written: Called after a file has been written.
            on_failure: Called if a file could not be written.
        """
        self.key = key
        self._directory = directory
        self._disk = disk
        self._writable = writable
        self._on_written = on_written
        self._on_failure = on_failure

    def has(self, graph: str) -> bool:
        """Whether the files of a graph exist; does not read them."""
        try:
            return self._disk.run(lambda: all(self._path(graph, part).is_file() for part in Part))
        except FAILURES:
            return False

    def read(self, graph: str, part: Part) -> Contents | None:
        """Reads a part of a graph, and notes that it was used; None if it is not in the cache.

        A damaged file is logged and removed, and counts as missing. One that cannot be read now is
        logged, and stays.
        """
        try:
            return self._disk.run(lambda: self._read(graph, part))
        except (FileNotFoundError, DiskTimeoutError):
            return None
        except FAILURES as error:
            path, reason = self._path(graph, part), str(error) or type(error).__name__
            log.warning("file of the compile cache not read", path=str(path), reason=reason)
            return None

    def write(
        self, graph: str, part: Part, payload: bytes, *, seconds: float, **details: Any
    ) -> None:
        """Writes a part of a graph, if possible.

        Args:
            graph: Name of the graph.
            part: Which part.
            payload: Content of the part.
            seconds: Time that making it took.
            **details: Further facts to keep with it, as JSON.
        """
        if not self._writable:
            return

        def write() -> None:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._write_key()
            path = self._path(graph, part)
            checksummed_file.write(path, payload, graph=graph, seconds=seconds, details=details)

        try:
            self._disk.run(write)
        except FAILURES as error:
            self._on_failure(error)
        else:
            self._on_written()

    def drop(self, graph: str, part: Part, *, reason: str) -> None:
        """Removes a part of a graph, if possible."""
        with contextlib.suppress(*FAILURES):
            self._disk.run(lambda: self._drop(graph, part, reason))

    def _read(self, graph: str, part: Part) -> Contents | None:
        path = self._path(graph, part)
        try:
            found = checksummed_file.read(path)
        except DamagedFileError as error:
            self._drop(graph, part, str(error))
            return None
        if self._writable:
            # The time of the last use, for eviction.
            with contextlib.suppress(OSError):
                os.utime(path)
        return found

    def _drop(self, graph: str, part: Part, reason: str) -> None:
        path = self._path(graph, part)
        if self._writable:
            remove(path)
            log.warning("damaged file of the compile cache removed", path=str(path), reason=reason)
        else:
            log.warning("damaged file in the compile cache", path=str(path), reason=reason)

    def _path(self, graph: str, part: Part) -> Path:
        return self._directory / f"{graph}.{part}"

    def _write_key(self) -> None:
        path = self._directory / KEY_FILE
        text = json.dumps(self.key.parts, indent=1).encode()
        with contextlib.suppress(OSError):
            if read_regular(path) == text:
                return
        write_atomically(path, text)


def remove(path: Path) -> None:
    """Removes a file or a directory, if possible."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

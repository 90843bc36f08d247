"""Files of the record: a directory for each model with a file for each process.

A process writes only its own file, under another name first, so a file with the right name is
complete. There are no locks, because pods share directories and the locks of file systems differ.

Files outlive their processes. When there are many, a process merges the abandoned ones, which were
not written for a while, into a new one. It renames each file before reading it, which only one
process can do, and removes it after writing the merged file. If the writer of a merged file still
lives, it finds the file gone and starts a new one with the traffic that it has not written yet.

Rare errors remain, and fade with time. If a process ends after writing the merged file and before
removing the parts, these count twice. A process that reads meanwhile may find a part twice or not
at all. A writer may write its file again at the moment of the merge. So the record serves only to
order warming and to fit ladders, which do not depend on a few requests.
"""

import contextlib
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from shaperouter_service.routing.traffic import Traffic
from shaperouter_service.routing.traffic_json import TrafficFormatError, from_json, to_json
from shaperouter_service.system.files import UNFINISHED, read_regular, write_atomically

# Seconds without a write after which a file counts as abandoned. Running processes write every half
# minute if there is anything to write. If the guess is wrong, they start a new file.
ABANDONED_SECONDS = 15 * 60.0

# Number of abandoned files from which they are merged: each costs a millisecond at every start.
MERGED_FROM = 16

log = structlog.get_logger(__name__)


def read_record(directory: Path) -> dict[str, Traffic]:
    """Reads the whole record: the traffic of each model, by name.

    Skips files that cannot be read, each with a warning.
    """
    record: dict[str, Traffic] = {}
    for path in (file for model in _entries(directory) for file in _entries(model, "*.json")):
        try:
            traffic = _read(path)
        except FileNotFoundError:  # It was just merged.
            continue
        except (OSError, TrafficFormatError) as error:
            log.warning("traffic record skipped", file=str(path), error=str(error))
            continue
        record[traffic.model] = _merged(record.get(traffic.model), traffic)
    return record


class RecordFile:
    """This process's file for one model. Not thread-safe."""

    def __init__(self, directory: Path, model: str) -> None:
        """Chooses the name; writes nothing yet."""
        self._path = directory / model / _new_name()
        self._written: Traffic | None = None
        self._unwritten: Traffic | None = None

    def add(self, recent: Traffic) -> None:
        """Adds recent traffic, which `save` will write."""
        self._unwritten = _merged(self._unwritten, recent)

    def save(self) -> None:
        """Writes the file, if traffic was added since the last save.

        Raises:
            OSError: The file cannot be written; the added traffic is kept for the next save.
        """
        if self._unwritten is None:
            return
        # Another process merged it, or someone removed it to forget the traffic.
        if self._written and not self._path.exists():
            self._written = None
        content = _merged(self._written, self._unwritten)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        _write(self._path, content)
        is_new = self._written is None
        self._written, self._unwritten = content, None
        # Only new files increase their number.
        if is_new:
            _merge_abandoned(self._path.parent)


def _entries(directory: Path, pattern: str = "*") -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.match(pattern))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        log.warning("traffic record unreadable", directory=str(directory), error=str(error))
        return []


def _read(path: Path) -> Traffic:
    """Reads a file.

    Raises:
        OSError: The file cannot be read.
        TrafficFormatError: The file is not a record, or is of another model than its directory.
    """
    traffic = from_json(read_regular(path))
    if traffic.model != path.parent.name:
        raise TrafficFormatError(
            f"its model is {traffic.model!r}, but it is in the directory of another model"
        )
    return _until_now(traffic)


def _try_read(path: Path) -> Traffic | None:
    try:
        return _read(path)
    except (OSError, TrafficFormatError):
        return None


def _merged(known: Traffic | None, more: Traffic) -> Traffic:
    return _until_now(known).merged(_until_now(more)) if known else more


def _until_now(traffic: Traffic) -> Traffic:
    """Dates traffic now if it is of the future.

    A clock that was ahead must not make all other traffic look old.
    """
    return replace(traffic, as_of=min(traffic.as_of, time.time()))


def _new_name() -> str:
    return f"{uuid.uuid4().hex}.json"


def _write(path: Path, traffic: Traffic) -> None:
    write_atomically(path, to_json(traffic).encode())


def _merge_abandoned(directory: Path) -> None:
    """Merges the abandoned files of a model, if there are many."""
    try:
        for unfinished in _abandoned(directory, UNFINISHED):
            unfinished.unlink(missing_ok=True)
        # Unreadable files stay: they may be of a newer version, which can read them.
        abandoned = [path for path in _abandoned(directory, "*.json") if _try_read(path)]
        if len(abandoned) >= MERGED_FROM:
            _merge(abandoned, directory / _new_name())
    except OSError as error:
        log.warning("traffic records not merged", directory=str(directory), error=str(error))


def _abandoned(directory: Path, pattern: str) -> Iterator[Path]:
    before = time.time() - ABANDONED_SECONDS
    for path in _entries(directory, pattern):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < before:
                yield path


def _merge(paths: Sequence[Path], target: Path) -> None:
    merged: Traffic | None = None
    parts: list[Path] = []
    for path in paths:
        part = path.with_name(_new_name())
        with contextlib.suppress(FileNotFoundError):  # Another process was first.
            # Without a new time, other processes would consider it abandoned under its new name.
            os.utime(path)
            path.rename(part)
            traffic = _try_read(part)
            if traffic is not None:
                merged = _merged(merged, traffic)
                parts.append(part)
    if merged is None:
        return
    _write(target, merged)
    for part in parts:
        part.unlink(missing_ok=True)
    log.info("traffic records merged", directory=str(target.parent), files=len(parts))

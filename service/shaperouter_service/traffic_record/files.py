"""Files of the record: a directory for each model, and in it a file of each process.

A process writes only its own file, whole, under another name first, so that what bears the right
name is complete. Nobody locks anything, because directories are shared by pods and file systems
differ in what their locks mean.

Files outlive their processes. When they pile up, a process merges those that nobody has written for
a while into one of its own. It renames each before it reads it, which only one process can do, and
removes it only once the merged file is there. The writer of a file that was taken though it still
lives finds it gone and begins anew with what it has not written yet.

What can go wrong is little, and all of it fades: a process that ends between writing the merged
file and removing the last of its parts leaves those to be counted twice; one that reads meanwhile
may find a part both here and there, or in neither place; and a writer may put its file back in the
moment in which it is taken. That is why nothing but the order of warming and the fit of ladders
may be built on the record, and neither turns on a few requests.
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
from shaperouter_service.routing.traffic_text import TrafficFormatError, from_text, to_text
from shaperouter_service.system.files import read_regular

# Seconds without a change after which a file is taken for left behind. Living processes write
# every half minute if there is anything to write; a wrong guess costs them a new file.
LEFT_BEHIND = 15 * 60.0

# Files left behind that are worth merging: they are read at each start, a millisecond each.
PILE = 16

UNFINISHED = ".tmp"

log = structlog.get_logger(__name__)


def read_record(directory: Path) -> dict[str, Traffic]:
    """Reads the whole record: the traffic of each model, by name.

    What can't be read is passed over with a warning each.
    """
    record: dict[str, Traffic] = {}
    for path in (file for model in _entries(directory) for file in _entries(model, "*.json")):
        try:
            traffic = _read(path)
        except FileNotFoundError:  # It has just been merged into another.
            continue
        except (OSError, TrafficFormatError) as error:
            log.warning("traffic record skipped", file=str(path), error=str(error))
            continue
        record[traffic.model] = _together(record.get(traffic.model), traffic)
    return record


class RecordFile:
    """The file of this process for one model. Only one thread may use it at a time."""

    def __init__(self, directory: Path, model: str) -> None:
        """Names the file; nothing is written yet."""
        self._path = directory / model / _new_name()
        self._written: Traffic | None = None
        self._waiting: Traffic | None = None

    def add(self, recent: Traffic) -> None:
        """Takes what was recorded since the last time; `save` writes it."""
        self._waiting = _together(self._waiting, recent)

    def save(self) -> None:
        """Writes the file, if anything was added since the last time.

        Raises:
            OSError: It can't be written; what waits to be written is kept.
        """
        if self._waiting is None:
            return
        # Merged into another, or removed by someone who wants it forgotten.
        if self._written and not self._path.exists():
            self._written = None
        content = _together(self._written, self._waiting)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        _write(self._path, content)
        is_new = self._written is None
        self._written, self._waiting = content, None
        # Files pile up only where new ones are made.
        if is_new:
            _merge_left_behind(self._path.parent)


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
        OSError: It can't be read.
        TrafficFormatError: It is no record, or not one of the model whose directory it is in.
    """
    traffic = from_text(read_regular(path))
    if traffic.model != path.parent.name:
        raise TrafficFormatError(
            f"it is of {traffic.model!r}, but in the directory of another model"
        )
    # A clock that was ahead must not make all other traffic look old.
    return replace(traffic, as_of=min(traffic.as_of, time.time()))


def _try_read(path: Path) -> Traffic | None:
    try:
        return _read(path)
    except (OSError, TrafficFormatError):
        return None


def _together(known: Traffic | None, more: Traffic) -> Traffic:
    return known.merged(more) if known else more


def _new_name() -> str:
    return f"{uuid.uuid4().hex}.json"


def _write(path: Path, traffic: Traffic) -> None:
    unfinished = path.with_suffix(UNFINISHED)
    try:
        unfinished.write_text(to_text(traffic), encoding="utf-8")
        unfinished.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise


def _merge_left_behind(directory: Path) -> None:
    """Merges the files of a model that nobody has written for a while, if they have piled up."""
    try:
        for unfinished in _left_behind(directory, f"*{UNFINISHED}"):
            unfinished.unlink(missing_ok=True)
        # Those that can't be read stay: they may be of a newer version, which will want them.
        pile = [path for path in _left_behind(directory, "*.json") if _try_read(path)]
        if len(pile) >= PILE:
            _merge(pile, directory / _new_name())
    except OSError as error:
        log.warning("traffic records not merged", directory=str(directory), error=str(error))


def _left_behind(directory: Path, pattern: str) -> Iterator[Path]:
    before = time.time() - LEFT_BEHIND
    for path in _entries(directory, pattern):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < before:
                yield path


def _merge(pile: Sequence[Path], target: Path) -> None:
    merged: Traffic | None = None
    parts: list[Path] = []
    for path in pile:
        part = path.with_name(_new_name())
        with contextlib.suppress(FileNotFoundError):  # Another process was first.
            # Fresh, or others would take it for left behind under its new name.
            os.utime(path)
            path.rename(part)
            traffic = _try_read(part)
            if traffic is not None:
                merged = _together(merged, traffic)
                parts.append(part)
    if merged is None:
        return
    _write(target, merged)
    for part in parts:
        part.unlink(missing_ok=True)
    log.info("traffic records merged", directory=str(target.parent), files=len(parts))

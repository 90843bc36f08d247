"""Digests of models whose files have not changed since they were last read."""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from shaperouter_service.checkpoints.digest import model_digest, model_files
from shaperouter_service.compile_cache.checksummed_file import DamagedFileError, read, write
from shaperouter_service.compile_cache.disk import FAILURES, Disk
from shaperouter_service.errors import StartupError

# A file that has changed within this time may change again without another time of change: some
# systems keep times in seconds.
_SETTLED_NANOSECONDS = 2 * 10**9


class _File(NamedTuple):
    """Facts about a file; times in nanoseconds.

    Attributes:
        name: Its name below the model.
        size: Its bytes.
        inode: Its inode.
        modified: When its contents last changed, which programs can set.
        changed: When anything of it last changed.
    """

    name: str
    size: int
    inode: int
    modified: int
    changed: int


class DigestCache:
    """Keeps the digests of models in a directory, each with facts about the model's files.

    A file's size, inode and times of change differ after a change, so files need not be read again
    while they are the same. That saves a start a second for each gigabyte of weights. Threads and
    processes may share a directory.
    """

    def __init__(self, directory: Path | None) -> None:
        """Takes the directory, which is created when it is needed; None keeps no digests."""
        self._directory = directory
        self._disk = Disk()

    def digest(self, model: Path) -> str:
        """The digest of a model; see `model_digest`.

        Raises:
            StartupError: A file cannot be read.
        """
        if self._directory is None:
            return model_digest(model)
        real = model.resolve()
        kept = self._directory / hashlib.blake2b(bytes(real), digest_size=16).hexdigest()
        facts, began = _facts(model), time.time_ns()
        if (known := self._read(kept, facts)) is not None:
            return known
        digest = model_digest(model)
        settled = began - _SETTLED_NANOSECONDS
        if facts == _facts(model) and all(each.changed < settled for each in facts):
            payload = json.dumps({"files": facts, "digest": digest}).encode()
            seconds = (time.time_ns() - began) / 1e9
            # Without it, the next start reads the files again.
            with contextlib.suppress(*FAILURES):
                self._disk.run(lambda: self._write(kept, payload, seconds))
        return digest

    def _read(self, kept: Path, facts: Sequence[_File]) -> str | None:
        try:
            found = json.loads(self._disk.run(lambda: read(kept)).payload)
            is_same = found["files"] == [list(each) for each in facts]
            return str(found["digest"]) if is_same else None
        # What another version wrote may have any form.
        except (*FAILURES, DamagedFileError, ValueError, LookupError, TypeError):
            return None

    def _write(self, kept: Path, payload: bytes, seconds: float) -> None:
        kept.parent.mkdir(mode=0o700, exist_ok=True)
        write(kept, payload, graph="", seconds=seconds, details={})


def _facts(model: Path) -> Sequence[_File]:
    try:
        return [_file(name, path.stat()) for name, path in model_files(model)]
    except OSError as error:
        raise StartupError(f"{error.filename}: cannot be read: {error.strerror}") from error


def _file(name: str, status: os.stat_result) -> _File:
    return _File(name, status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)

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
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.compile_cache.checksummed_file import DamagedFileError, read, write
from shaperouter_service.compile_cache.directory import digests_directory
from shaperouter_service.compile_cache.disk import FAILURES, Disk
from shaperouter_service.errors import StartupError

# A file that has changed within this time may change again without another time of change: some
# systems keep times in seconds.
_SETTLED_NANOSECONDS = 2 * 10**9
# Bytes at the beginning and at the end of a file that are always read.
_SAMPLE_BYTES = 2**16


class _File(NamedTuple):
    """Facts about a file; times in nanoseconds.

    Attributes:
        name: Its name below the model.
        size: Its bytes.
        device: The device that it is on.
        inode: Its inode.
        modified: When its contents last changed, which programs can set.
        changed: When anything of it last changed.
        sample: Digest of its first and last bytes, for images that have one time for all files.
    """

    name: str
    size: int
    device: int
    inode: int
    modified: int
    changed: int
    sample: str


class DigestCache:
    """Keeps the digests of models in a directory, each with facts about the model's files.

    Files need not be read again while their sizes, inodes, times of change, first and last bytes
    are the same. That saves a start a second for each gigabyte of weights. Threads and processes
    may share a cache.
    """

    def __init__(self, cache: CompileCache | None) -> None:
        """Takes the compile cache that holds the digests; None keeps none."""
        self._cache = cache

    def digest(self, model: Path) -> str:
        """The digest of a model; see `model_digest`.

        Raises:
            StartupError: A file cannot be read.
        """
        if self._cache is None:
            return model_digest(model)
        real, directory = model.resolve(), digests_directory(self._cache.directory)
        kept = directory / hashlib.blake2b(bytes(real), digest_size=16).hexdigest()
        facts, began = _facts(model), time.time_ns()
        disk = self._cache.disk
        if (known := _read(kept, facts, disk)) is not None:
            return known
        digest = model_digest(model)
        settled = began - _SETTLED_NANOSECONDS
        if facts == _facts(model) and all(each.changed < settled for each in facts):
            payload = json.dumps({"files": facts, "digest": digest}).encode()
            seconds = (time.time_ns() - began) / 1e9
            # Without it, the next start reads the files again.
            with contextlib.suppress(*FAILURES):
                disk.run(lambda: _write(kept, payload, seconds))
        return digest


def _read(kept: Path, facts: Sequence[_File], disk: Disk) -> str | None:
    try:
        found = json.loads(disk.run(lambda: read(kept)).payload)
        is_same = found["files"] == [list(each) for each in facts]
        return str(found["digest"]) if is_same else None
    # What another version wrote may have any form.
    except (*FAILURES, DamagedFileError, ValueError, LookupError, TypeError):
        return None


def _write(kept: Path, payload: bytes, seconds: float) -> None:
    kept.parent.mkdir(mode=0o700, exist_ok=True)
    write(kept, payload, graph="", seconds=seconds, details={})


def _facts(model: Path) -> Sequence[_File]:
    try:
        return [_file(name, path) for name, path in model_files(model)]
    except OSError as error:
        raise StartupError(f"{error.filename}: cannot be read: {error.strerror}") from error


def _file(name: str, path: Path) -> _File:
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        sample = hashlib.blake2b(file.read(_SAMPLE_BYTES), digest_size=16)
        file.seek(max(0, status.st_size - _SAMPLE_BYTES))
        sample.update(file.read(_SAMPLE_BYTES))
    return _File(
        name=name,
        size=status.st_size,
        device=status.st_dev,
        inode=status.st_ino,
        modified=status.st_mtime_ns,
        changed=status.st_ctime_ns,
        sample=sample.hexdigest(),
    )

"""The compile cache, on a disk of its own that can be full, read-only or damaged."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import subprocess
import threading
from collections.abc import Iterator
from io import RawIOBase
from pathlib import Path

# Bytes of the disk: what the campaign compiles takes a third of it.
_SIZE = 512 << 20
_BLOCK = 1 << 20
# Number of bytes of a file in which bits are flipped, and of such files.
_FILES, _BYTES = 3, 4


class Disk:
    """The disk. Without root it is a directory, which cannot be full or read-only."""

    def __init__(self, directory: Path, kept: Path) -> None:
        """Makes it, in this process's own mount namespace.

        Args:
            directory: Where to make it.
            kept: What it contains, if there is such a directory.
        """
        self.directory = directory
        self._kept = kept
        self._changing = threading.Lock()
        self._root = os.geteuid() == 0
        directory.mkdir(parents=True)
        if self._root:
            _run("mount", "-t", "tmpfs", "-o", f"size={_SIZE},mode=700", "tmpfs", str(directory))
        if kept.exists():
            shutil.copytree(kept, directory, dirs_exist_ok=True)

    def keep(self) -> None:
        """Keeps what it contains for the disks of later campaigns."""
        shutil.copytree(self.directory, self._kept, dirs_exist_ok=True)

    @contextlib.contextmanager
    def filled(self) -> Iterator[None]:
        """Leaves no byte free inside of the context."""
        filler = self.directory / "filler"
        with self._changing:
            try:
                with filler.open("wb", buffering=0) as file:
                    for size in (_BLOCK, 1):
                        _fill(file, size)
                yield
            finally:
                filler.unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Allows no writing inside of the context, even where files are open for it."""
        path = str(self.directory)
        with self._changing:
            _run("mount", "--bind", path, path)
            try:
                _run("mount", "-o", "remount,bind,ro", path)
                yield
            finally:
                # Files may have been opened meanwhile.
                _run("umount", "--lazy", path)

    def damage(self, seed: int) -> None:
        """Flips bits of some files, as a failing disk would."""
        source = random.Random(seed)
        files = sorted(path for path in self.directory.rglob("*") if path.is_file())
        for path in source.sample(files, min(_FILES, len(files))):
            # Files may vanish or grow meanwhile.
            with contextlib.suppress(OSError), path.open("r+b", buffering=0) as file:
                size = path.stat().st_size
                for _ in range(_BYTES if size else 0):
                    place = source.randrange(size)
                    file.seek(place)
                    (old,) = file.read(1) or b"\0"
                    file.seek(place)
                    file.write(bytes([old ^ (1 << source.randrange(8))]))

    def close(self) -> None:
        """Removes it."""
        if self._root:
            _run("umount", "--lazy", str(self.directory))


def _fill(file: RawIOBase, size: int) -> None:
    """Writes pieces of a size until there is no room for one."""
    try:
        while file.write(bytes(size)):
            pass
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


def _run(*command: str) -> None:
    subprocess.run(command, check=True)

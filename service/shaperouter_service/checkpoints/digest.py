"""Digests of models' files, which tell whether two workers have loaded the same model."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shaperouter_service.checkpoints.functions import is_function
from shaperouter_service.checkpoints.model_files import WEIGHTS_SUFFIX, WHOLE_SUFFIXES
from shaperouter_service.errors import StartupError

# Kinds of files that a checkpoint's answers may depend on. Others, such as weights for other
# frameworks, are not read.
READ_SUFFIXES = (*WHOLE_SUFFIXES, WEIGHTS_SUFFIX, ".toml")

# Files that are read at the same time: a core computes about a gigabyte a second.
_THREADS = 4


def model_digest(path: Path) -> str:
    """The SHA-256 of the names and contents of all files that a model is loaded from.

    It reads all weights, which takes about a second for a gigabyte.

    Args:
        path: A checkpoint's or SavedModel's directory, or a `.keras` file.

    Returns:
        64 hexadecimal digits.

    Raises:
        StartupError: A file cannot be read.
    """
    files = model_files(path)
    try:
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="digest") as threads:
            digests = list(threads.map(_file_digest, (file for _, file in files)))
    except OSError as error:
        raise StartupError(f"{error.filename}: cannot be read: {error.strerror}") from error
    whole = hashlib.sha256()
    for (name, _), digest in zip(files, digests, strict=True):
        # Names cannot contain NUL, and digests have one length.
        whole.update(os.fsencode(name) + b"\0" + digest)
    return whole.hexdigest()


def model_files(path: Path) -> Sequence[tuple[str, Path]]:
    """The files that a model is loaded from, with their names below it, in order.

    Args:
        path: See `model_digest`.
    """
    root = path if path.is_dir() else path.parent
    return sorted((file.relative_to(root).as_posix(), file) for file in _files(path))


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        settings = path.parent / "shaperouter.toml"
        if settings.is_file():
            yield settings
        return
    reads_all = is_function(path)
    for file in path.rglob("*"):
        if file.is_file() and (reads_all or file.suffix in READ_SUFFIXES):
            yield file


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()

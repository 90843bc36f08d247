"""Files of arrays: .npy and .npz."""

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import click

from shaperouter._errors import InvalidArgumentError
from shaperouter._tensors import numpy

# What NumPy raises for files that are empty, cut off or not in its formats.
_UNREADABLE = (
    *(OSError, ValueError, EOFError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error),
)


def read_arrays(file: str) -> Any:
    """The arrays of an .npz file by name, or the one of an .npy file.

    Raises:
        InvalidArgumentError: The file cannot be read.
    """
    try:
        with Path(file).open("rb") as content:  # NumPy leaves a broken archive open
            # Objects in such a file could run code.
            loaded = numpy().load(content, allow_pickle=False)
            return dict(loaded) if isinstance(loaded, Mapping) else loaded
    except _UNREADABLE as error:
        raise InvalidArgumentError.of("inputs", f"cannot be read: {error}") from error


@contextmanager
def opened_for_arrays(path: Path) -> Iterator[BinaryIO]:
    """Opens a file for `write_arrays`, which replaces what it holds.

    If the block fails before that, an existing file keeps its content, and a new one is removed.

    Raises:
        InvalidArgumentError: It cannot be written.
    """
    new = not path.exists()
    try:
        file = path.open("xb" if new else "r+b")
    except OSError as error:
        raise InvalidArgumentError.of("save", f"cannot be written: {error}") from error
    try:
        with file:
            yield file
    except BaseException:
        if new:
            path.unlink(missing_ok=True)
        raise


def write_arrays(file: BinaryIO, arrays: Mapping[str, Any]) -> None:
    """Writes arrays as NumPy's `savez` does, which has no place for one with the name `file`.

    Raises:
        click.ClickException: They cannot be written.
    """
    stored = {name: _stored(name, array) for name, array in arrays.items()}
    try:
        file.truncate(0)
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in stored.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    numpy().save(member, array, allow_pickle=False)
        file.flush()
    except OSError as error:
        raise click.ClickException(f"cannot write {file.name}: {error.strerror}") from error


def _stored(name: str, array: Any) -> Any:
    """An array without objects, which `read_arrays` refuses."""
    if array.dtype != object:
        return array
    if any(value.endswith(b"\0") for value in array.flat):
        raise click.ClickException(
            f"{name} has a value that ends with NUL, which arrays of bytes lose; leave out --save"
        )
    return array.astype("S")

"""Reader of checkpoints in the Hugging Face layout: config.json and safetensors files."""

import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from shaperouter_service.checkpoints.model_files import read_json, safetensors_files
from shaperouter_service.errors import StartupError
from shaperouter_service.kernels import aligned

# Types of weights that can be read, with NumPy's names; integers would need scales. NumPy knows
# bfloat16 through ml_dtypes, which TensorFlow imports.
FLOATING = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "bfloat16"}

# Tensors are converted in pieces of about this size, which fit in the processor's cache.
PIECE_BYTES = 2**20
# Tensors are compared in pieces of this many numbers.
PIECE_NUMBERS = 2**18

# Bytes of the size of a file's header, with which the file begins.
_SIZE_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class _Tensor:
    """Where a file holds a tensor.

    Attributes:
        path: The file.
        dtype: Type, as the file names it.
        shape: Shape.
        offset: Position of the values in the file, in bytes.
    """

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int


class Checkpoint:
    """A checkpoint: its configuration, and its tensors, which are read one at a time.

    Attributes:
        directory: Directory of the checkpoint.
        config: The content of config.json.
        generation_config: The content of generation_config.json; None without that file.
        names: Names of all tensors.
        unread: Names of the tensors that have not been read.
        file_bytes: Total size of the safetensors files.
    """

    def __init__(
        self,
        directory: Path,
        on_read: Callable[[int], object] = lambda _: None,
        *,
        only_headers: bool = False,
    ) -> None:
        """Opens the checkpoint in a directory; no tensor is read yet.

        Args:
            directory: Directory of the checkpoint.
            on_read: Called with the number of bytes after each read from a file.
            only_headers: Check names, shapes and types of tensors without reading values: `read`
                then returns arrays of arbitrary values.

        Raises:
            StartupError: A file is missing or damaged.
        """
        self.directory = directory
        self._on_read = on_read
        self._only_headers = only_headers
        if not directory.is_dir():
            raise StartupError(f"{directory}: is not a directory")
        self.config = read_json(directory / "config.json")
        generation_config = directory / "generation_config.json"
        self.generation_config = (
            read_json(generation_config) if generation_config.exists() else None
        )
        self._tensors: dict[str, _Tensor] = {}
        self.file_bytes = 0
        for path in safetensors_files(directory):
            self._tensors |= _tensors(path)
            self.file_bytes += path.stat().st_size
        self.names: Collection[str] = self._tensors.keys()
        self.unread: set[str] = set(self._tensors)

    def read(
        self,
        name: str,
        *,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        transposed: bool = False,
    ) -> np.ndarray:
        """Reads a tensor and converts it.

        Args:
            name: Name in the checkpoint.
            shape: Shape in the checkpoint.
            dtype: Type to convert to.
            transposed: Transpose from [O, I] to [I, O].

        Returns:
            An array; it is a view of the file, which can't be written, where nothing is converted.
            Values are then read from the disk when they are used.

        Raises:
            StartupError: The tensor is missing, its type is not a floating one, or its shape is not
                the one that the config implies.
        """
        tensor = self._tensors.get(name)
        if tensor is None:
            raise StartupError(f"{self.directory}: tensor {name} is missing")
        if tensor.shape != shape:
            raise StartupError(
                f"{self.directory}: tensor {name} has shape {list(tensor.shape)}, but "
                f"config.json implies {list(shape)}"
            )
        self._check_type(name)
        self.unread.discard(name)
        if self._only_headers:
            return aligned(shape[::-1] if transposed else shape, dtype)
        # Mapped for each tensor: pages of a mapped file count as memory until it is closed.
        values = _mapped(tensor)
        if values.dtype == dtype:
            self._on_read(values.nbytes)
            return values.T if transposed else values
        array = aligned(shape[::-1] if transposed else shape, dtype)
        target = array.T if transposed else array
        rows = max(1, PIECE_BYTES // values[0].nbytes)
        for start in range(0, len(target), rows):
            piece = values[start : start + rows]
            target[start : start + rows] = piece
            self._on_read(piece.nbytes)
        return array

    def are_equal(self, name: str, other: str) -> bool:
        """Compares the values of two tensors, also with `only_headers`.

        Neither counts as read. The memory for it is small, because only pieces are held.

        Raises:
            StartupError: The type of one is not a floating one, or its file can't be read.
        """
        self._check_type(name)
        self._check_type(other)
        one, another = self._tensors[name], self._tensors[other]
        return one.shape == another.shape and all(
            np.array_equal(_piece(one, start), _piece(another, start))
            for start in range(0, math.prod(one.shape), PIECE_NUMBERS)
        )

    def read_joined(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        *,
        dtype: np.dtype[Any],
        transposed: bool = False,
    ) -> np.ndarray:
        """Reads tensors as one, joined along their first axis.

        Args:
            shapes: Shape of each tensor in the checkpoint, by its name; equal except for the first
                axis.
            dtype: Type to convert to.
            transposed: Transpose the joined tensors from [O, I] to [I, O].

        Raises:
            StartupError: As for `read`.
        """
        if len(shapes) == 1:
            ((name, shape),) = shapes.items()
            return self.read(name, shape=shape, dtype=dtype, transposed=transposed)
        parts = [self.read(name, shape=shape, dtype=dtype) for name, shape in shapes.items()]
        shape = (sum(len(part) for part in parts), *parts[0].shape[1:])
        joined = aligned(shape, dtype)
        if not self._only_headers:
            np.concatenate(parts, out=joined)
        return joined.T if transposed else joined

    def _check_type(self, name: str) -> None:
        if (dtype := self._tensors[name].dtype) not in FLOATING:
            raise StartupError(
                f"{self.directory}: tensor {name} must be one of {', '.join(FLOATING)}, got {dtype}"
            )


def _tensors(path: Path) -> Mapping[str, _Tensor]:
    """The tensors of a file by name.

    Raises:
        StartupError: The file can't be read or is damaged.
    """
    try:
        # The library checks the header against the file, but copies what it reads.
        with safe_open(path, framework="numpy"), path.open("rb") as file:
            size = int.from_bytes(file.read(_SIZE_BYTES), "little")
            header = json.loads(file.read(size))
    except (OSError, SafetensorError) as error:
        raise StartupError(f"{path}: cannot be read: {error}") from error
    header.pop("__metadata__", None)
    return {
        name: _Tensor(
            path=path,
            dtype=tensor["dtype"],
            shape=tuple(tensor["shape"]),
            offset=_SIZE_BYTES + size + tensor["data_offsets"][0],
        )
        for name, tensor in header.items()
    }


def _mapped(tensor: _Tensor) -> np.ndarray:
    """A view of a tensor's values in its file.

    Raises:
        StartupError: The file can't be read, or has become shorter.
    """
    dtype = np.dtype(FLOATING[tensor.dtype])
    try:
        return np.memmap(tensor.path, dtype, "r", tensor.offset, tensor.shape).view(np.ndarray)
    except (OSError, ValueError) as error:
        raise StartupError(f"{tensor.path}: cannot be read: {error}") from error


def _piece(tensor: _Tensor, start: int) -> np.ndarray:
    """Reads numbers of a tensor from a place on.

    Raises:
        StartupError: The file can't be read.
    """
    dtype = np.dtype(FLOATING[tensor.dtype])
    count = min(PIECE_NUMBERS, math.prod(tensor.shape) - start)
    try:
        return np.fromfile(tensor.path, dtype, count, offset=tensor.offset + start * dtype.itemsize)
    except OSError as error:
        raise StartupError(f"{tensor.path}: cannot be read: {error}") from error

"""Reader of checkpoints in the Hugging Face layout: config.json and safetensors files."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from shaperouter_service.checkpoints.model_files import read_json, weight_files
from shaperouter_service.errors import StartupError
from shaperouter_service.kernels import aligned

WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"

# Types of weights that can be read, with their sizes in bytes; integers would need scales. NumPy
# knows BF16 through ml_dtypes, which TensorFlow imports.
FLOATING = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}

# Tensors are copied in pieces of about this size, which fit in the processor's cache.
PIECE_BYTES = 2**20


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
        self._files: dict[str, Path] = {}
        self.file_bytes = 0
        for path in weight_files(directory, WEIGHTS, WEIGHTS_INDEX):
            with _opened(path) as file:
                self._files.update(dict.fromkeys(file.keys(), path))
            self.file_bytes += path.stat().st_size
        self.names: Collection[str] = self._files.keys()
        self.unread: set[str] = set(self._files)

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
            An array whose memory TensorFlow can use without copying.

        Raises:
            StartupError: The tensor is missing, its type is not a floating one, or its shape is not
                the one that the config implies.
        """
        if name not in self._files:
            raise StartupError(f"{self.directory}: tensor {name} is missing")
        # Opened for each tensor: pages of a mapped file stay in memory until it is closed.
        with _opened(self._files[name]) as file:
            tensor = file.get_slice(name)
            if tuple(tensor.get_shape()) != shape:
                raise StartupError(
                    f"{self.directory}: tensor {name} has shape {tensor.get_shape()}, but "
                    f"config.json implies {list(shape)}"
                )
            if tensor.get_dtype() not in FLOATING:
                raise StartupError(
                    f"{self.directory}: tensor {name} must be one of {', '.join(FLOATING)}, got "
                    f"{tensor.get_dtype()}"
                )
            self.unread.discard(name)
            array = aligned(shape[::-1] if transposed else shape, dtype)
            if self._only_headers:
                return array
            target = array.T if transposed else array
            row_bytes = target[0].size * FLOATING[tensor.get_dtype()]
            rows = max(1, PIECE_BYTES // row_bytes)
            for start in range(0, len(target), rows):
                piece = target[start : start + rows]
                piece[...] = tensor[start : start + len(piece)]
                self._on_read(len(piece) * row_bytes)
        return array


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Maps a file of tensors into memory inside the context."""
    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except (OSError, SafetensorError) as error:
        raise StartupError(f"{path}: cannot be read: {error}") from error

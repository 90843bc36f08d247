"""Reading a model directory in the Hugging Face layout: config.json and safetensors."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from shaperouter_service.checkpoints.json_files import read_json
from shaperouter_service.checkpoints.model_files import weight_files
from shaperouter_service.errors import StartupError
from shaperouter_service.kernels import aligned

WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"

# Types of stored weights that mean what they say, and their sizes in bytes; integers need scales
# that we don't read. NumPy knows BF16 by ml_dtypes, which TensorFlow imports.
FLOATING = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}

# Tensors are copied in pieces of about this size: they stay in the processor's cache on their way.
PIECE_BYTES = 2**20


class Checkpoint:
    """A checkpoint's configuration, and its tensors, which are read one at a time.

    Attributes:
        directory: Where it lies.
        config: The content of config.json.
        generation_config: The content of generation_config.json; None without that file.
        names: Names of all tensors.
        unread: Names of those that have not been read.
        file_bytes: Size of the files that hold them.
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
            directory: Where it lies.
            on_read: Called with the number of bytes whenever some have been read from files.
            only_headers: Check names, shapes and types of tensors, and leave their values unread:
                `read` then returns arrays of arbitrary values.

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
            name: As in the checkpoint.
            shape: In the checkpoint.
            dtype: To convert to.
            transposed: Turn it from [O, I] to [I, O].

        Returns:
            An array whose memory TensorFlow can use as it is.

        Raises:
            StartupError: It is missing, is not floating, or has another shape than the config
                implies.
        """
        if name not in self._files:
            raise StartupError(f"{self.directory}: tensor {name} is missing")
        # Opened anew for each tensor: what was read of a mapped file stays in memory until then.
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
    """A file of tensors, mapped into memory meanwhile."""
    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except (OSError, SafetensorError) as error:
        raise StartupError(f"{path}: cannot be read: {error}") from error

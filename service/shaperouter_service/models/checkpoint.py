"""Reading a model directory in the Hugging Face layout: config.json and safetensors."""

import json
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError, safe_open

from shaperouter_service.errors import StartupError

WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"

# Types of stored weights that mean what they say; integers need scales that we don't read.
FLOATING = ("F64", "F32", "F16", "BF16")


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        StartupError: The file is missing, is not JSON, or holds something else than an object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartupError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise StartupError(f"{path}: is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise StartupError(f"{path}: must hold a JSON object, got {type(content).__name__}")
    return content


class Checkpoint:
    """An open checkpoint; tensors are memory-mapped and read one at a time.

    Attributes:
        directory: Where it lies.
        config: The content of config.json.
        generation_config: The content of generation_config.json; None without that file.
        names: Names of all tensors.
    """

    def __init__(self, directory: Path) -> None:
        """Opens the checkpoint in a directory.

        Raises:
            StartupError: A file is missing or damaged.
        """
        self.directory = directory
        if not directory.is_dir():
            raise StartupError(f"{directory}: is not a directory")
        self.config = read_json(directory / "config.json")
        generation_config = directory / "generation_config.json"
        self.generation_config = (
            read_json(generation_config) if generation_config.exists() else None
        )
        self._stack = ExitStack()
        self._files: dict[str, Any] = {}
        for path in self._weight_files():
            try:
                file = self._stack.enter_context(safe_open(path, framework="numpy"))
            except (OSError, SafetensorError) as error:
                self._stack.close()
                raise StartupError(f"{path}: cannot be read: {error}") from error
            self._files.update(dict.fromkeys(file.keys(), file))
        self.names: Collection[str] = self._files.keys()

    def __enter__(self) -> Self:
        """Returns itself; the files are closed on exit."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the files."""
        self._stack.close()

    def _weight_files(self) -> list[Path]:
        if (self.directory / WEIGHTS).exists():
            return [self.directory / WEIGHTS]
        index = self.directory / WEIGHTS_INDEX
        if not index.exists():
            raise StartupError(
                f"{self.directory}: has neither {WEIGHTS} nor {WEIGHTS_INDEX}; other weight "
                "formats are not read (convert them with save_pretrained)"
            )
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise StartupError(f"{index}: has no weight_map")
        shards = sorted({str(shard) for shard in weight_map.values()})
        for shard in shards:
            # A checkpoint is untrusted input: a shard lies beside its index, nowhere else.
            if Path(shard).name != shard:
                raise StartupError(f"{index}: shard {shard!r} is outside of the directory")
            if not (self.directory / shard).exists():
                raise StartupError(f"{self.directory / shard}: is missing, but named by {index}")
        return [self.directory / shard for shard in shards]

    def read(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Reads one tensor and converts it.

        Raises:
            StartupError: It is missing, is not floating, or has another shape than the config
                implies.
        """
        if name not in self._files:
            raise StartupError(f"{self.directory}: tensor {name} is missing")
        file = self._files[name]
        found = tuple(file.get_slice(name).get_shape())
        if found != shape:
            raise StartupError(
                f"{self.directory}: tensor {name} has shape {list(found)}, but config.json implies "
                f"{list(shape)}"
            )
        stored = file.get_slice(name).get_dtype()
        if stored not in FLOATING:
            raise StartupError(
                f"{self.directory}: tensor {name} must be one of {', '.join(FLOATING)}, got "
                f"{stored}"
            )
        return np.asarray(file.get_tensor(name)).astype(dtype, copy=False)

"""Reader of model.bin, the weights of a CTranslate2 model.

The layout is that of `ModelSpec._serialize` in CTranslate2 4.8: little-endian, strings have
their length before them and a zero after them.
"""

import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shaperouter_service.errors import StartupError

# The version of the format that CTranslate2 writes since its version 3.
BINARY_VERSION = 6

# Types of stored tensors by number. NumPy has no bfloat16: its bits are read as integers.
BFLOAT16 = 5
TYPES: Mapping[int, np.dtype[Any]] = {
    0: np.dtype("<f4"),
    1: np.dtype("<i1"),
    2: np.dtype("<i2"),
    3: np.dtype("<i4"),
    4: np.dtype("<f2"),
    BFLOAT16: np.dtype("<u2"),
}

# Suffix of the tensor that a quantized one is divided by: a number for each row, or one for all.
SCALE_SUFFIX = "_scale"


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The tensors of a model.bin.

    Attributes:
        path: Path of the file, for messages.
        kind: Name of the model's layout, e.g. `WhisperSpec`.
        revision: Revision of that layout.
        tensors: Tensors by name, as they are stored, quantized or not.
        aliases: Names of tensors that are equal to another one, with the name of that one.
    """

    path: Path
    kind: str
    revision: int
    tensors: Mapping[str, np.ndarray]
    aliases: Mapping[str, str]

    @property
    def layers(self) -> Mapping[str, int]:
        """Number of layers of each part, e.g. of `encoder`."""
        counts: dict[str, int] = {}
        for name in self.tensors:
            part, _, rest = name.partition("/layer_")
            number = rest.partition("/")[0]
            if number.isdecimal():
                counts[part] = max(counts.get(part, 0), int(number) + 1)
        return counts

    def scalar(self, name: str) -> int:
        """Reads one number.

        Raises:
            StartupError: It is missing or is not one number.
        """
        tensor = self._stored(name)
        if tensor.size != 1:
            raise StartupError(f"{self.path}: {name} must be one number, got {tensor.size}")
        return int(tensor.reshape(())[()])

    def tensor(self, name: str) -> np.ndarray:
        """Reads a tensor of weights: as it is stored, or float32 if it was quantized.

        Raises:
            StartupError: It or its scale is missing, or their shapes do not match.
        """
        stored = self._stored(name)
        if stored.dtype.kind == "f":
            return stored
        scale = self._stored(name + SCALE_SUFFIX).astype(np.float32)
        if scale.size not in (1, stored.shape[0]):
            raise StartupError(
                f"{self.path}: {name} has {stored.shape[0]} rows, but {scale.size} scales"
            )
        by_row = scale.reshape([-1] + [1] * (stored.ndim - 1))
        return stored.astype(np.float32) / by_row

    def _stored(self, name: str) -> np.ndarray:
        name = self.aliases.get(name, name)
        if name not in self.tensors:
            raise StartupError(f"{self.path}: tensor {name} is missing")
        return self.tensors[name]


def read_weights(path: Path) -> Weights:
    """Maps a model.bin into memory.

    Raises:
        StartupError: The file cannot be read, is damaged, or is of another version.
    """
    try:
        with path.open("rb") as file:
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise StartupError(f"{path}: cannot be read: {error}") from error
    reader = _Reader(path, content)
    version = reader.number(4)
    if version != BINARY_VERSION:
        raise StartupError(
            f"{path}: must be a CTranslate2 model of binary version {BINARY_VERSION}, got {version}"
        )
    kind, revision = reader.string(), reader.number(4)
    tensors = dict(reader.tensor() for _ in range(reader.number(4)))
    aliases = {reader.string(): reader.string() for _ in range(reader.number(4))}
    return Weights(path=path, kind=kind, revision=revision, tensors=tensors, aliases=aliases)


class _Reader:
    """Reads values in sequence."""

    def __init__(self, path: Path, content: memoryview) -> None:
        self._path, self._content, self._position = path, content, 0

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "little")

    def string(self) -> str:
        raw = bytes(self._take(self.number(2)))
        try:
            return raw.removesuffix(b"\0").decode()
        except UnicodeDecodeError as error:
            raise self._damaged(f"a name is not UTF-8: {error}") from error

    def tensor(self) -> tuple[str, np.ndarray]:
        name = self.string()
        shape = [self.number(4) for _ in range(self.number(1))]
        number = self.number(1)
        if number not in TYPES:
            raise self._damaged(f"tensor {name} has type {number}, not one of 0 to {max(TYPES)}")
        raw = self._take(self.number(4))
        if raw.nbytes != math.prod(shape) * TYPES[number].itemsize:
            raise self._damaged(f"tensor {name} of shape {shape} has {raw.nbytes} bytes")
        array = np.frombuffer(raw, TYPES[number]).reshape(shape)
        if number == BFLOAT16:
            # Its bits are the upper half of a float32.
            array = (array.astype(np.uint32) << 16).view(np.float32)
        return name, array

    def _take(self, size: int) -> memoryview:
        piece = self._content[self._position : self._position + size]
        if len(piece) < size:
            raise self._damaged(f"it ends after {len(self._content)} bytes")
        self._position += size
        return piece

    def _damaged(self, reason: str) -> StartupError:
        return StartupError(f"{self._path}: is damaged: {reason}")

"""A model's weights, and the device that computes with them."""

from collections.abc import Iterator, Mapping
from enum import Enum, StrEnum, auto
from typing import Any

import tensorflow as tf


class DeviceKind(StrEnum):
    """What graphs are compiled for."""

    CPU = "CPU"
    GPU = "GPU"

    @classmethod
    def present(cls) -> "DeviceKind":
        """A GPU if TensorFlow sees one."""
        return cls.GPU if tf.config.list_physical_devices("GPU") else cls.CPU


class Role(Enum):
    """What layers do with a matrix, which tells how it may be held."""

    # Rows are multiplied by it, [I, O]: `layers.linear`.
    LINEAR = auto()
    # Rows are multiplied by it turned, [V, E], or its rows are looked up: `layers.output_logits`,
    # `layers.embedding`.
    VOCABULARY = auto()
    # Anything else, in TensorFlow's own operations.
    PLAIN = auto()


class Weights(Mapping[str, Any]):
    """Weights by name.

    Attributes:
        device: What they are on. Layers write a product in the way that is fast there.
        packed: Of those that are held in panels for the native kernels, the shapes [I, O] of the
            matrices. The scales of such a weight, if it has any, have its name with `SCALES` behind
            it.
    """

    SCALES = ".scales"

    def __init__(
        self,
        tensors: Mapping[str, Any],
        device: DeviceKind,
        packed: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        """Holds variables or tensors."""
        self._tensors = tensors
        self.device = device
        self.packed: Mapping[str, tuple[int, int]] = packed or {}

    @property
    def is_packed(self) -> bool:
        """Whether the native kernels compute with them."""
        return bool(self.packed)

    def read(self) -> "Weights":
        """In a graph: the variables' values, read once wherever they are used then."""
        values = {name: variable.read_value() for name, variable in self._tensors.items()}
        return Weights(values, self.device, self.packed)

    def __getitem__(self, name: str) -> Any:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

"""A model's weights, and the device that computes with them."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
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


class Weights(Mapping[str, Any]):
    """Weights by name.

    Attributes:
        device: What they are on. Layers write a product in the way that is fast there.
    """

    def __init__(self, tensors: Mapping[str, Any], device: DeviceKind) -> None:
        """Holds variables or tensors."""
        self._tensors = tensors
        self.device = device

    def read(self) -> "Weights":
        """In a graph: the variables' values, read once wherever they are used then."""
        values = {name: variable.read_value() for name, variable in self._tensors.items()}
        return Weights(values, self.device)

    def __getitem__(self, name: str) -> Any:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

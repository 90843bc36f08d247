"""A model's weights and the device that computes with them."""

from collections.abc import Iterator, Mapping
from enum import Enum, StrEnum, auto
from typing import Any, NamedTuple

import tensorflow as tf


class DeviceKind(StrEnum):
    """The kind of device that graphs are compiled for."""

    CPU = "CPU"
    GPU = "GPU"

    @classmethod
    def present(cls) -> "DeviceKind":
        """Returns GPU if TensorFlow sees one, and CPU otherwise."""
        return cls.GPU if tf.config.list_physical_devices("GPU") else cls.CPU


class Role(Enum):
    """The use of a matrix in layers, which decides how it can be stored."""

    # Rows are multiplied by it, [I, O]: `layers.linear`.
    LINEAR = auto()
    # Rows are multiplied by its transpose, [V, E], or its rows are looked up:
    # `layers.output_logits`, `layers.embedding`.
    VOCABULARY = auto()
    # Any other use, by TensorFlow's own operations.
    UNPACKED = auto()


class PackedMatrix(NamedTuple):
    """A matrix in the layout of the native kernels.

    Attributes:
        panels: The matrix, or the stack that contains it.
        shape: [I, O], the shape of the matrix.
        layer: int32, its index in the stack; None outside a stack.
        scales: [O] float32, factors of the columns; None if it has none.
        needed_rows: [1] int32, the number of rows to multiply by it, from the first; None for all.
    """

    panels: tf.Tensor
    shape: tuple[int, int]
    layer: tf.Tensor | None
    scales: tf.Tensor | None
    needed_rows: tf.Tensor | None = None


class Weights(Mapping[str, Any]):
    """The weights of a model, or those of one of its layers, by name.

    With the native kernels, weights of layers are stacked: `h.7.ln_1.bias` is the eighth of the
    stack `h.ln_1.bias`. Otherwise each layer has its own tensors.

    The weights of a model's draft model are beside its own, with names that begin with `DRAFT`.

    Attributes:
        device: The device that holds them. Layers compute products in the way that is fast there.
        packed: Shapes [I, O] of the matrices that are packed for the native kernels, by the names
            of the packed tensors. The scales of such a weight, if any, have its name followed by
            `SCALES`.
    """

    SCALES = ".scales"
    DRAFT = "draft."

    def __init__(
        self,
        tensors: Mapping[str, Any],
        device: DeviceKind,
        packed: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        """Wraps variables or tensors."""
        self._tensors = tensors
        self.device = device
        self.packed: Mapping[str, tuple[int, int]] = packed or {}
        # For the weights of a draft model or of one layer: the prefix of their names, and for those
        # of a layer its index in the stacks.
        self._prefix = ""
        self._layer: tf.Tensor | None = None
        self._needed_rows: tf.Tensor | None = None

    @property
    def is_packed(self) -> bool:
        """Whether the native kernels compute with them."""
        return bool(self.packed)

    def read(self) -> "Weights":
        """Returns the variables' values; called in a graph, which then reads each only once."""
        values = {name: variable.read_value() for name, variable in self._tensors.items()}
        return Weights(values, self.device, self.packed)

    def for_rows(self, count: tf.Tensor) -> "Weights":
        """Returns the same weights, limited to the first rows of each input.

        The native kernels then compute products and norms of only those rows, and leave the others
        undefined. XLA ignores the limit.

        Args:
            count: [1] int32, the number of rows.
        """
        limited = self._copy()
        limited._needed_rows = count
        return limited

    @property
    def needed_rows(self) -> tf.Tensor | None:
        """[1] int32, the number of rows that are needed, from the first; None for all."""
        return self._needed_rows

    def with_draft(self, draft: "Weights") -> "Weights":
        """Returns these weights and those of a draft model."""
        return Weights(
            {**self._tensors, **{self.DRAFT + name: draft[name] for name in draft}},
            self.device,
            {**self.packed, **{self.DRAFT + name: shape for name, shape in draft.packed.items()}},
        )

    @property
    def of_draft(self) -> "Weights":
        """The weights of the draft model, by their names within it."""
        draft = self._copy()
        draft._prefix = self.DRAFT
        return draft

    def layer(self, stack: str, index: int | tf.Tensor) -> "Weights":
        """Returns the weights of one layer, by their names within the layer.

        Args:
            stack: Prefix of their names, such as `h`.
            index: Index of the layer; a tensor only if weights are stacked.
        """
        of_layer = self._copy()
        if self.is_packed:
            of_layer._prefix += f"{stack}."
            of_layer._layer = tf.convert_to_tensor(index)
        else:
            of_layer._prefix += f"{stack}.{index}."
        return of_layer

    def _copy(self) -> "Weights":
        copied = Weights(self._tensors, self.device, self.packed)
        copied._prefix, copied._needed_rows = self._prefix, self._needed_rows
        return copied

    def packed_matrix(self, name: str) -> PackedMatrix | None:
        """Returns a matrix for the native kernels; None if XLA multiplies by it."""
        whole = self._prefix + name
        if whole not in self.packed:
            return None
        # A stack is passed whole: slicing a matrix out of it would copy the matrix.
        return PackedMatrix(
            self._tensors[whole],
            self.packed[whole],
            self._layer,
            self.get(name + self.SCALES),
            self._needed_rows,
        )

    def __getitem__(self, name: str) -> Any:
        tensor = self._tensors[self._prefix + name]
        return tensor if self._layer is None else tf.gather(tensor, self._layer)

    def __iter__(self) -> Iterator[str]:
        start = len(self._prefix)
        return (name[start:] for name in self._tensors if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)

"""The memory that weights are loaded into."""

import re
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from shaperouter_service.kernels import Panels, aligned, as_aligned
from shaperouter_service.models.weights import DeviceKind, Role, Weights
from shaperouter_service.system.populated_memory import PopulatedMemory


class Layout(Protocol):
    """The facts that decide how weights are stored; families provide them."""

    @property
    def stacks(self) -> Mapping[str, int]:
        """See `Family.stacks`."""

    @property
    def roles(self) -> Mapping[str, Role]:
        """See `Family.roles`."""


class _Place(NamedTuple):
    """Where a weight is kept.

    Attributes:
        name: Name of its variable.
        layer: Its index in the variable; None if the variable has no other weight.
        layers: Number of layers in the variable; None likewise.
    """

    name: str
    layer: int | None
    layers: int | None


def packed_type(dtype: tf.DType, role: Role) -> tf.DType:
    """Returns the type that a matrix of this role is packed in if the others are of `dtype`.

    Embeddings have at least eight bits: four cost as much accuracy there as in all layers together,
    and each step of a generation looks up one of them and multiplies by all of them.
    """
    return tf.int8 if dtype.name == "int4" and role is Role.VOCABULARY else dtype


class WeightMemory:
    """The memory of weights that are packed and stacked for the native kernels.

    Memory is reserved first, by the shapes of the weights, and `fill` then writes one weight at a
    time to its final place, so loading takes little more memory than the result.
    """

    def __init__(
        self, layout: Layout, packed_dtype: tf.DType, memory: PopulatedMemory | None = None
    ) -> None:
        """Prepares for the weights of a model.

        Args:
            layout: Its stacks and roles; a family.
            packed_dtype: Type to pack matrices in; see `packed_type`.
            memory: Memory to take it from while there is enough; None for new memory.
        """
        self._layout = layout
        self._dtype = packed_dtype
        self._memory = memory
        stacks = "|".join(map(re.escape, layout.stacks))
        self._of_layer = re.compile(rf"({stacks})\.(\d+)\.(.+)")
        self._arrays: dict[str, np.ndarray] = {}
        self._panels: dict[str, Panels] = {}

    def reserve(self, name: str, array: np.ndarray) -> None:
        """Reserves memory for a weight of the array's shape and type; its values do not matter."""
        place = self._place(name)
        if place.name in self._panels or place.name in self._arrays:
            return  # in a stack whose memory was reserved with its first layer
        if array.ndim == 2 and self._role(name) is not Role.UNPACKED:
            shape = self._matrix(name, array).shape
            dtype = np.dtype(packed_type(self._dtype, self._role(name)).as_numpy_dtype)
            self._panels[place.name] = Panels.empty(shape, dtype, place.layers, self._memory)
        else:
            stack = () if place.layers is None else (place.layers,)
            self._arrays[place.name] = aligned((*stack, *array.shape), array.dtype, self._memory)

    def weights(self, device: DeviceKind) -> Weights:
        """The reserved weights; their variables have the values that `fill` has written."""
        packed = {name: panels.shape for name, panels in self._panels.items()}
        arrays = dict(self._arrays)
        for name, panels in self._panels.items():
            arrays[name] = panels.values
            if panels.scales is not None:
                arrays[name + Weights.SCALES] = panels.scales
        return Weights(
            {name: variable(name, array) for name, array in arrays.items()}, device, packed
        )

    def fill(self, name: str, array: np.ndarray) -> None:
        """Writes the values of a reserved weight, which its variable then has."""
        place = self._place(name)
        if (panels := self._panels.get(place.name)) is not None:
            of_layer = panels if place.layer is None else panels.layer(place.layer)
            of_layer.fill(self._matrix(name, array))
        else:
            target = self._arrays[place.name]
            (target if place.layer is None else target[place.layer])[...] = array

    def _place(self, name: str) -> _Place:
        if (found := self._of_layer.fullmatch(name)) is None:
            return _Place(name, None, None)
        stack = found[1]
        return _Place(f"{stack}.{found[3]}", int(found[2]), self._layout.stacks[stack])

    def _role(self, name: str) -> Role:
        return self._layout.roles.get(name, Role.LINEAR)

    def _matrix(self, name: str, array: np.ndarray) -> np.ndarray:
        """The matrix [I, O] to pack."""
        # Embeddings have no second copy: their rows are looked up in the panels.
        return array.T if self._role(name) is Role.VOCABULARY else array


def variable(name: str, array: np.ndarray) -> tf.Variable:
    """Creates a variable that uses the array's memory if the device is the CPU.

    `tf.Variable(array)` would copy the array, and briefly hold it three times.
    """
    array = as_aligned(array)
    # NumPy's DLPack does not support bfloat16, so its bits are passed as integers.
    is_bfloat16 = array.dtype == tf.bfloat16.as_numpy_dtype
    tensor = tf.experimental.dlpack.from_dlpack(
        (array.view(np.uint16) if is_bfloat16 else array).__dlpack__()
    )
    if is_bfloat16:
        tensor = tf.bitcast(tensor, tf.bfloat16)
    return tf.Variable(tensor, trainable=False, name=name)

"""The memory that a model's weights are loaded into."""

import re
from collections.abc import Mapping
from typing import Protocol

import numpy as np
import tensorflow as tf

from shaperouter_service.kernels import Panels, aligned, as_aligned
from shaperouter_service.models.weights import Role, Weights


class Layout(Protocol):
    """What decides how weights are stored; families have it."""

    @property
    def stacks(self) -> Mapping[str, int]:
        """See `Family.stacks`."""

    @property
    def roles(self) -> Mapping[str, Role]:
        """See `Family.roles`."""


class WeightMemory:
    """Collects the weights of a model in memory, one at a time.

    A packed or stacked weight is written directly to its final place, so loading takes
    little more memory than the result.

    Attributes:
        parameters: Number of parameters added so far.
        packed: The same as in `Weights`.
        variables: Variables of the weights, by name; complete after `finish`.
        sizes: Bytes of each variable.
    """

    def __init__(self, layout: Layout, packed_dtype: tf.DType | None) -> None:
        """Prepares for the weights of a model.

        Args:
            layout: Its stacks and roles; a family.
            packed_dtype: Type to pack matrices in for the native kernels, which also stacks the
                weights of layers; if None, nothing is packed or stacked.
        """
        self._layout = layout
        self._dtype = None if packed_dtype is None else np.dtype(packed_dtype.as_numpy_dtype)
        stacks = "|".join(map(re.escape, layout.stacks))
        self._of_layer = re.compile(rf"({stacks})\.(\d+)\.(.+)")
        self._arrays: dict[str, np.ndarray] = {}
        self._panels: dict[str, Panels] = {}
        self.parameters = 0
        self.packed: dict[str, tuple[int, int]] = {}
        self.variables: dict[str, tf.Variable] = {}
        self.sizes: dict[str, int] = {}

    def add(self, name: str, array: np.ndarray) -> None:
        """Adds a weight; the memory of one that is neither packed nor stacked is used directly."""
        self.parameters += array.size
        if self._dtype is None:
            self._hold(name, array)
            return
        role = self._layout.roles.get(name, Role.LINEAR)
        layer, layers = None, None
        if (found := self._of_layer.fullmatch(name)) is not None:
            stack, layer = found[1], int(found[2])
            name, layers = f"{stack}.{found[3]}", self._layout.stacks[stack]
        if array.ndim == 2 and role is not Role.UNPACKED:
            # Embeddings have no second copy: their rows are looked up in the panels.
            matrix = array.T if role is Role.VOCABULARY else array
            if name not in self._panels:
                self._panels[name] = Panels.empty(matrix.shape, self._dtype, layers)
            panels = self._panels[name]
            (panels if layer is None else panels.layer(layer)).fill(matrix)
        elif layer is None or layers is None:
            self._arrays[name] = array
        else:
            if name not in self._arrays:
                self._arrays[name] = aligned((layers, *array.shape), array.dtype)
            self._arrays[name][layer] = array

    def finish(self) -> None:
        """Creates the variables of packed and stacked weights; call it after the last `add`."""
        for name, array in self._arrays.items():
            self._hold(name, array)
        for name, panels in self._panels.items():
            self.packed[name] = panels.shape
            self._hold(name, panels.values)
            if panels.scales is not None:
                self._hold(name + Weights.SCALES, panels.scales)

    def _hold(self, name: str, array: np.ndarray) -> None:
        self.sizes[name] = array.nbytes
        self.variables[name] = variable(name, array)


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

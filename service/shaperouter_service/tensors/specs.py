"""The tensors that a model with a single call takes and returns, and their named axes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from shaperouter_service.tensors.dtypes import DType

# A value that pads a tensor.
Scalar: TypeAlias = bool | int | float | bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """A tensor that a model takes or gives.

    Attributes:
        name: Its name.
        dtype: Its data type.
        shape: Its dimensions; None where the size differs between calls.
    """

    name: str
    dtype: DType
    shape: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A size that differs between calls, and the dimensions that have it.

    Attributes:
        name: Its name, e.g. `batch` or `length`.
        inputs: The dimension of each input that has this size, by the input's name.
        outputs: The dimension of each output that has this size, by the output's name.
        pad: The value that pads each of these inputs; 0, False or no bytes if an input is missing.
    """

    name: str
    inputs: Mapping[str, int]
    outputs: Mapping[str, int] = field(default_factory=dict)
    pad: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSpec:
    """The tensors and axes of a model that is called once.

    Attributes:
        inputs: The tensors that it takes.
        outputs: The tensors that it gives. A call returns all of them by default.
        batch: The axis along which calls of several callers can be joined; None if there is none.
        axes: The other axes, in the order in which signatures have their sizes.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batch: Axis | None
    axes: tuple[Axis, ...] = ()

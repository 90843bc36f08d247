"""Checks the inputs of a call against what the model takes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shaperouter_service.errors import (
    MAX_NAMES_SHOWN,
    InvalidRequestError,
    Violation,
    shortened,
)
from shaperouter_service.tensors.dtypes import DType
from shaperouter_service.tensors.specs import Axis, CallSpec, TensorSpec

# Maximum characters of a name from a caller in an error.
_SHOWN = 64


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a call.

    Attributes:
        rows: Size of the batch; 1 if the model has no batch axis.
        axes: Sizes of the other axes, in their order.
    """

    rows: int
    axes: tuple[int, ...] = ()


def sizes_of(inputs: "Mapping[str, np.ndarray[Any, Any]]", spec: CallSpec) -> Sizes:
    """Checks the inputs of a call and returns its sizes. Values are not checked.

    Raises:
        InvalidRequestError: A tensor is missing or unknown, has the wrong data type, rank or
            dimension, or disagrees with another tensor about the size of an axis.
    """
    violations = list(_violations(inputs, spec))
    if violations:
        raise InvalidRequestError(*violations)
    return Sizes(
        rows=1 if spec.batch is None else _size(inputs, spec.batch),
        axes=tuple(_size(inputs, axis) for axis in spec.axes),
    )


def _violations(
    inputs: "Mapping[str, np.ndarray[Any, Any]]", spec: CallSpec
) -> Iterator[Violation]:
    known = {each.name: each for each in spec.inputs}
    for name in inputs.keys() - known.keys():
        takes = shortened(", ".join(known), MAX_NAMES_SHOWN)
        yield Violation(
            field="inputs",
            description=f"the model has no input {shortened(name, _SHOWN)!r}; it takes {takes}",
        )
    for name, each in known.items():
        if name not in inputs:
            yield Violation(field=f"inputs.{name}", description="is required")
            continue
        fault = _fault(inputs[name], each)
        if fault is not None:
            yield Violation(field=f"inputs.{name}", description=fault)
            return
    if known.keys() != inputs.keys():
        return
    for axis in filter(None, (spec.batch, *spec.axes)):
        found = {name: inputs[name].shape[dimension] for name, dimension in axis.inputs.items()}
        if len(set(found.values())) > 1:
            differ = ", ".join(f"{size} in {name}" for name, size in found.items())
            description = f"axis {axis.name} must have one size in all inputs, got {differ}"
            yield Violation(field="inputs", description=description)
        elif 0 in found.values():
            name = next(iter(found))
            description = f"axis {axis.name} must have at least 1, got 0"
            yield Violation(field=f"inputs.{name}", description=description)


def _fault(tensor: "np.ndarray[Any, Any]", spec: TensorSpec) -> str | None:
    """Describes what is wrong with a tensor by itself, if anything."""
    dtype = DType.of(tensor)
    if dtype is not spec.dtype:
        return f"must be {spec.dtype}, got {dtype}"
    if tensor.ndim != len(spec.shape):
        return f"must have {len(spec.shape)} dimensions, got {tensor.ndim}"
    for dimension, (size, due) in enumerate(zip(tensor.shape, spec.shape, strict=True)):
        if due is not None and size != due:
            return f"dimension {dimension} must be {due}, got {size}"
    return None


def _size(inputs: "Mapping[str, np.ndarray[Any, Any]]", axis: Axis) -> int:
    name, dimension = next(iter(axis.inputs.items()))
    return int(inputs[name].shape[dimension])

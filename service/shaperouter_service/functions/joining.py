"""Joining calls along the batch, padding them, and cutting their results out of a batch: NumPy."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from shaperouter_service.tensors.checking import Sizes
from shaperouter_service.tensors.dtypes import DType
from shaperouter_service.tensors.specs import Axis, CallSpec, TensorSpec

Arrays: TypeAlias = "Mapping[str, np.ndarray[Any, Any]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some rows of a call, which one graph computes.

    Attributes:
        inputs: The inputs of the whole call.
        sizes: The sizes of the whole call.
        first: Its first row in the call.
        rows: Number of its rows.
    """

    inputs: Arrays
    sizes: Sizes
    first: int
    rows: int


def common_inputs(inputs: Arrays, spec: CallSpec) -> bytes:
    """A digest of the inputs without rows: one call gives them for all that are joined with it."""
    digest = hashlib.blake2b(digest_size=16)
    for each in spec.inputs:
        if spec.batch is None or each.name in spec.batch.inputs:
            continue
        array = inputs[each.name]
        digest.update(f"{each.name} {array.shape}".encode())
        is_text = each.dtype is DType.BYTES
        digest.update(repr(array.tolist()).encode() if is_text else array.tobytes())
    return digest.digest()


def join(parts: Sequence[Part], spec: CallSpec, sizes: Sizes) -> "dict[str, np.ndarray[Any, Any]]":
    """Joins parts of calls in their order to one batch, padded to `sizes`.

    Args:
        parts: The parts, of calls with the same `common_inputs`.
        spec: The tensors and axes of the model.
        sizes: The sizes of the batch.
    """
    return {each.name: _joined(parts, spec, sizes, each) for each in spec.inputs}


def cut(outputs: Arrays, spec: CallSpec, part: Part, row: int) -> "dict[str, np.ndarray[Any, Any]]":
    """Cuts the results of a part out of the outputs of a batch.

    Args:
        outputs: The outputs.
        spec: The tensors and axes of the model.
        part: The part.
        row: Its first row in the batch.
    """
    found = {}
    for name, output in outputs.items():
        # Without the ellipsis, an array without dimensions would become its element.
        index: list[Any] = [*[slice(None)] * output.ndim, ...]
        if spec.batch is not None and name in spec.batch.outputs:
            index[spec.batch.outputs[name]] = slice(row, row + part.rows)
        for axis, size in zip(spec.axes, part.sizes.axes, strict=True):
            if name in axis.outputs:
                index[axis.outputs[name]] = slice(size)
        found[name] = output[tuple(index)]
    return found


class PartsDifferError(Exception):
    """The results of the parts of a call have different sizes; the message says which."""


def merge(results: Sequence[Arrays], spec: CallSpec) -> Arrays:
    """Merges the results of the parts of a call, in the order of their rows.

    Raises:
        PartsDifferError: They do not fit together, because the size of an output depends on values.
    """
    if len(results) == 1 or spec.batch is None:
        return results[0]
    axes = spec.batch.outputs
    merged = {}
    for name, first in results[0].items():
        # An output without rows depends on nothing that has rows, so all parts have the same.
        merged[name] = first
        if name in axes:
            try:
                merged[name] = np.concatenate([each[name] for each in results], axis=axes[name])
            except ValueError as error:
                raise PartsDifferError(f"{name} has other sizes in other rows: {error}") from error
    return merged


def elements(sizes: Sizes) -> int:
    """Rows times the product of the other sizes."""
    return sizes.rows * math.prod(sizes.axes)


def _joined(
    parts: Sequence[Part], spec: CallSpec, sizes: Sizes, tensor: TensorSpec
) -> "np.ndarray[Any, Any]":
    name = tensor.name
    if spec.batch is None or name not in spec.batch.inputs:
        # It has no rows, and is the same in all calls.
        (array,) = (_padded(part, spec, sizes, name) for part in parts[:1])
        return array
    dimension = spec.batch.inputs[name]
    if len(parts) == 1 and parts[0].rows == sizes.rows == parts[0].sizes.rows:
        return _padded(parts[0], spec, sizes, name)
    shape = list(parts[0].inputs[name].shape)
    shape[dimension] = sizes.rows
    for axis, size in zip(spec.axes, sizes.axes, strict=True):
        if name in axis.inputs:
            shape[axis.inputs[name]] = size
    joined = np.full(shape, _pad(spec.batch, tensor), tensor.dtype.numpy)
    row = 0
    for part in parts:
        placed = [slice(None)] * len(shape)
        placed[dimension] = slice(row, row + part.rows)
        joined[tuple(placed)] = _padded(part, spec, sizes, name)
        row += part.rows
    return joined


def _padded(part: Part, spec: CallSpec, sizes: Sizes, name: str) -> "np.ndarray[Any, Any]":
    """An input of a part, padded along all axes but the batch."""
    array = part.inputs[name]
    if spec.batch is not None and name in spec.batch.inputs:
        # First, since a call may have many parts.
        rows = [slice(None)] * array.ndim
        rows[spec.batch.inputs[name]] = slice(part.first, part.first + part.rows)
        array = array[tuple(rows)]
    (tensor,) = (each for each in spec.inputs if each.name == name)
    for axis, own, size in zip(spec.axes, part.sizes.axes, sizes.axes, strict=True):
        if own == size or name not in axis.inputs:
            continue
        shape = list(array.shape)
        shape[axis.inputs[name]] = size
        wider = np.full(shape, _pad(axis, tensor), tensor.dtype.numpy)
        index = [slice(None)] * len(shape)
        index[axis.inputs[name]] = slice(own)
        wider[tuple(index)] = array
        array = wider
    return array


def _pad(axis: Axis, tensor: TensorSpec) -> Any:
    """The value that pads a tensor along an axis."""
    return axis.pad.get(tensor.name, b"" if tensor.dtype == "BYTES" else 0)

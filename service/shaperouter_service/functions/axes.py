"""The axes of a function: which sizes differ between calls, and in which dimensions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shaperouter_service.functions.settings import AxisSettings, FunctionSettings
from shaperouter_service.routing.call_ladders import BATCH, AxisLadder, CallLadders
from shaperouter_service.routing.ladder import Ladder
from shaperouter_service.tensors.specs import Axis, CallSpec, TensorSpec

# Ladders where the settings choose none. Rows and sizes double, so that at most half is padding.
DEFAULT_ROWS = Ladder((1, 2, 4, 8, 16, 32))
DEFAULT_SIZES = Ladder((8, 16, 32, 64, 128, 256, 512))


@dataclass(frozen=True, kw_only=True)
class GuessedAxes:
    """The axes of a function before any trial.

    Attributes:
        spec: The tensors and axes. An axis has the outputs that the settings declare.
        ladders: Their ladders.
    """

    spec: CallSpec
    ladders: CallLadders


def guess_axes(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], settings: FunctionSettings
) -> GuessedAxes:
    """Finds the axes of a function.

    Dimension 0 is the batch unless the settings say otherwise. Every other dimension of unknown
    size is an axis of the settings, or else part of an axis of all inputs with an undeclared
    unknown size there: `axis1` for dimension 1.

    Raises:
        StartupError: The settings name a tensor or a dimension that does not exist, or whose size
            is known, or one dimension twice.
    """
    declared = _declared(inputs, outputs, settings)
    guessed: dict[str, dict[str, int]] = {}
    for tensor in inputs:
        for dimension, size in enumerate(tensor.shape):
            if size is None and (tensor.name, dimension) not in declared:
                name = BATCH if dimension == 0 else f"axis{dimension}"
                guessed.setdefault(name, {})[tensor.name] = dimension
    found: dict[str, Axis] = {}
    for name in dict.fromkeys([BATCH, *settings.axes, *guessed]):
        chosen = settings.axes.get(name, AxisSettings())
        dimensions = {**chosen.inputs} or guessed.get(name, {})
        if chosen.inputs and name in guessed:
            extra = ", ".join(f"{each} = {index}" for each, index in guessed[name].items())
            raise settings.error(f"axes.{name}.inputs lacks dimensions of unknown size: {extra}")
        if dimensions:
            found[name] = Axis(
                name=name,
                inputs=dimensions,
                outputs=dict(chosen.outputs),
                pad={
                    tensor.name: _pad_value(settings, f"axes.{name}.pad", tensor, chosen.pad)
                    for tensor in inputs
                    if tensor.name in chosen.pad
                },
            )
        elif name in settings.axes:
            raise settings.error(f"axes.{name}: no input has a dimension of unknown size for it")
    axes = tuple(axis for name, axis in found.items() if name != BATCH)
    return GuessedAxes(
        spec=CallSpec(
            inputs=tuple(inputs), outputs=tuple(outputs), batch=found.get(BATCH), axes=axes
        ),
        ladders=CallLadders(
            rows=_ladder(settings, BATCH, DEFAULT_ROWS) if BATCH in found else Ladder((1,)),
            axes=tuple(
                AxisLadder(name=axis.name, ladder=_ladder(settings, axis.name, DEFAULT_SIZES))
                for axis in axes
            ),
        ),
    )


def _pad_value(
    settings: FunctionSettings, key: str, tensor: TensorSpec, pad: Mapping[str, Any]
) -> Any:
    """A value that pads a tensor, of its data type."""
    value, kind = pad[tensor.name], tensor.dtype.numpy.kind
    if kind == "O" and isinstance(value, str):
        return value.encode()
    if kind == "b" and isinstance(value, bool):
        return value
    if kind in "iu" and type(value) is int:
        limits = np.iinfo(tensor.dtype.numpy)
        if limits.min <= value <= limits.max:
            return value
    # Kinds of floats: bfloat16 is of another one than NumPy's own.
    if kind not in "Obiu" and type(value) in {int, float}:
        return value
    raise settings.error(
        f"{key}.{tensor.name} must be a value of type {tensor.dtype}, got {value!r}"
    )


def _ladder(settings: FunctionSettings, name: str, default: Ladder) -> Ladder | None:
    chosen = settings.axes.get(name, AxisSettings())
    return None if chosen.exact else chosen.ladder or default


def _declared(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], settings: FunctionSettings
) -> dict[tuple[str, int], str]:
    """The name of each declared dimension's axis, by input and dimension."""
    declared: dict[tuple[str, int], str] = {}
    for name, axis in settings.axes.items():
        for part, dimensions, tensors in (
            ("inputs", axis.inputs, inputs),
            ("outputs", axis.outputs, outputs),
            ("pad", dict.fromkeys(axis.pad), inputs),
        ):
            shapes = {tensor.name: tensor.shape for tensor in tensors}
            for tensor, dimension in dimensions.items():
                key = f"axes.{name}.{part}.{tensor}"
                if tensor not in shapes:
                    known = ", ".join(shapes)
                    raise settings.error(f"{key}: the signature has no such tensor, but {known}")
                if dimension is None:
                    continue
                shape = shapes[tensor]
                if dimension >= len(shape):
                    raise settings.error(
                        f"{key} must be below {len(shape)}, the tensor's number of dimensions, "
                        f"got {dimension}"
                    )
                if part != "inputs":
                    continue
                if shape[dimension] is not None:
                    raise settings.error(
                        f"{key}: dimension {dimension} always has the size {shape[dimension]}"
                    )
                if (tensor, dimension) in declared:
                    raise settings.error(
                        f"{key}: dimension {dimension} is already of axis "
                        f"{declared[tensor, dimension]}"
                    )
                declared[tensor, dimension] = name
    return declared

"""Whether two results of a model are equal except for rounding."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

# Differences that rounding may make, relative to the largest value of an output, by the size of its
# data type in bytes. Sums of other lengths are added up in another order. A model that reads the
# padding differs by much more.
TOLERANCES: Mapping[int, float] = {2: 2e-2, 4: 1e-4, 8: 1e-6}


def largest_values(outputs: "Mapping[str, np.ndarray[Any, Any]]") -> dict[str, float]:
    """The largest finite absolute value of each output of real numbers; 0 without one."""
    return {
        name: _largest(output.astype(np.float64))
        for name, output in outputs.items()
        if _is_real(output)
    }


def disagreement(
    expected: "Mapping[str, np.ndarray[Any, Any]]",
    found: "Mapping[str, np.ndarray[Any, Any]]",
    usual: Mapping[str, float] = MappingProxyType({}),
) -> str:
    """Says how results differ; empty if they agree.

    Numbers agree within `TOLERANCES`, everything else if it is equal. NaN agrees with NaN.

    Args:
        expected: The outputs by name.
        found: The outputs that are compared with them.
        usual: How large each output's largest value usually is. If a result has few values, all may
            happen to be small because sums nearly cancel; their rounding errors are not smaller.
    """
    for name, due in expected.items():
        got = found[name]
        if due.shape != got.shape:
            return f"{name} has the shape {list(got.shape)} instead of {list(due.shape)}"
        if not _is_real(due):
            differing = int(np.sum(due != got))
            if differing:
                return f"{differing} of {due.size} values of {name} differ"
            continue
        tolerance = TOLERANCES[due.dtype.itemsize]
        due, got = due.astype(np.float64), got.astype(np.float64)
        both = np.isfinite(due) & np.isfinite(got)
        # Infinities have signs, and compare as equal only to themselves.
        same = np.array_equal(due[~both], got[~both], equal_nan=True)
        largest = max(_largest(due[both]), usual.get(name, 0.0))
        difference = _largest(due[both] - got[both])
        if not same:
            return f"{name} has other values that are not finite"
        if difference > tolerance * max(largest, 1e-6):
            return f"{name} differs by {difference:.3g}, with values up to {largest:.3g}"
    return ""


def _is_real(output: "np.ndarray[Any, Any]") -> bool:
    # Not `issubdtype`, to which bfloat16 is not a float.
    return output.dtype.kind not in "biuSO"


def _largest(values: "np.ndarray[Any, Any]") -> float:
    return float(np.max(np.abs(values[np.isfinite(values)]), initial=0.0))

"""Whether two results of a model are equal except for rounding."""

from collections.abc import Mapping
from typing import Any

import numpy as np

# Differences that rounding may make, relative to the largest value of an output, by the size of its
# data type in bytes. Sums of other lengths are added up in another order. A model that reads the
# padding differs by much more.
TOLERANCES: Mapping[int, float] = {2: 2e-2, 4: 1e-4, 8: 1e-6}


def disagreement(
    expected: "Mapping[str, np.ndarray[Any, Any]]", found: "Mapping[str, np.ndarray[Any, Any]]"
) -> str:
    """Says how results differ; empty if they agree.

    Numbers agree within `TOLERANCES`, everything else if it is equal. NaN agrees with NaN.
    """
    for name, due in expected.items():
        got = found[name]
        if due.shape != got.shape:
            return f"{name} has the shape {list(got.shape)} instead of {list(due.shape)}"
        # Not `issubdtype`, to which bfloat16 is not a float.
        if due.dtype.kind in "biuSO":
            differing = int(np.sum(due != got))
            if differing:
                return f"{differing} of {due.size} values of {name} differ"
            continue
        tolerance = TOLERANCES[due.dtype.itemsize]
        due, got = due.astype(np.float64), got.astype(np.float64)
        both = np.isfinite(due) & np.isfinite(got)
        # Infinities have signs, and compare as equal only to themselves.
        same = np.array_equal(due[~both], got[~both], equal_nan=True)
        largest = float(np.max(np.abs(due[both]), initial=0.0))
        difference = float(np.max(np.abs(due[both] - got[both]), initial=0.0))
        if not same:
            return f"{name} has other values that are not finite"
        if difference > tolerance * max(largest, 1e-6):
            return f"{name} differs by {difference:.3g}, with values up to {largest:.3g}"
    return ""

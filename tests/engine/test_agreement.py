"""Which differences of results rounding may make."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from shaperouter_service.functions.agreement import disagreement


@pytest.mark.parametrize(
    ("dtype", "within", "beyond"),
    [
        (ml_dtypes.bfloat16, 1.015, 1.05),
        (np.float16, 1.01, 1.05),
        (np.float32, 1 + 5e-5, 1 + 5e-4),
        (np.float64, 1 + 5e-7, 1 + 5e-6),
    ],
    ids=["bfloat16", "float16", "float32", "float64"],
)
def test_the_type_of_the_numbers_says_what_is_rounding(
    dtype: Any, within: float, beyond: float
) -> None:
    due = np.ones(3, dtype)
    assert disagreement({"y": due}, {"y": (due * within).astype(dtype)}) == ""
    assert "y differs by" in disagreement({"y": due}, {"y": (due * beyond).astype(dtype)})

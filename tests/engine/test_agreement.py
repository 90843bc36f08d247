"""Which differences of results rounding may make."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from shaperouter_service.functions.agreement import disagreement, largest_values


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


def test_an_output_that_is_small_for_once_is_rounded_as_usual() -> None:
    usual = largest_values({"y": np.array([0.5, -3.0, np.inf])})
    assert usual == {"y": 3.0}
    due, found = ({"y": np.array([value], np.float32)} for value in (1e-5, 2e-5))
    assert "y differs by" in disagreement(due, found)
    assert disagreement(due, found, usual) == ""
    assert "y differs by" in disagreement(due, {"y": np.array([1e-3], np.float32)}, usual)


def test_only_real_numbers_have_a_largest_value() -> None:
    outputs = {"label": np.array([7]), "name": np.array([b"a"], object), "none": np.zeros([0])}
    assert largest_values(outputs) == {"none": 0.0}

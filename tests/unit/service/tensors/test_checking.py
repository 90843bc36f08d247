"""Inputs of calls are checked against what the model takes."""

import numpy as np
import pytest

from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.tensors.checking import Sizes, sizes_of
from shaperouter_service.tensors.dtypes import DType
from shaperouter_service.tensors.specs import Axis, CallSpec, TensorSpec

SPEC = CallSpec(
    inputs=(
        TensorSpec(name="ids", dtype=DType.INT32, shape=(None, None)),
        TensorSpec(name="features", dtype=DType.FP32, shape=(None, 3)),
    ),
    outputs=(TensorSpec(name="scores", dtype=DType.FP32, shape=(None, 2)),),
    batch=Axis(name="batch", inputs={"ids": 0, "features": 0}, outputs={"scores": 0}),
    axes=(Axis(name="length", inputs={"ids": 1}),),
)


def inputs(**changed: np.ndarray) -> dict[str, np.ndarray]:
    valid = {"ids": np.zeros((2, 5), np.int32), "features": np.zeros((2, 3), np.float32)}
    return {**valid, **changed}


def fault(tensors: dict[str, np.ndarray]) -> tuple[str, str]:
    with pytest.raises(InvalidRequestError) as caught:
        sizes_of(tensors, SPEC)
    (violation,) = caught.value.violations
    return violation.field, violation.description


def test_valid_inputs_give_the_sizes_of_the_batch_and_the_axes() -> None:
    assert sizes_of(inputs(), SPEC) == Sizes(rows=2, axes=(5,))


def test_a_missing_input_is_named() -> None:
    tensors = inputs()
    del tensors["ids"]
    assert fault(tensors) == ("inputs.ids", "is required")


def test_an_unknown_input_is_named_beside_the_known_ones() -> None:
    field, description = fault(inputs(mask=np.zeros(1, np.int32)))
    assert field == "inputs"
    assert "'mask'" in description
    assert "ids, features" in description


@pytest.mark.parametrize(
    ("tensor", "description"),
    [
        (np.zeros((2, 5), np.int64), "must be INT32, got INT64"),
        (np.zeros((2, 5, 1), np.int32), "must have 2 dimensions, got 3"),
    ],
)
def test_a_wrong_type_or_rank_is_named(tensor: np.ndarray, description: str) -> None:
    assert fault(inputs(ids=tensor)) == ("inputs.ids", description)


def test_a_wrong_fixed_dimension_is_named() -> None:
    tensor = np.zeros((2, 4), np.float32)
    assert fault(inputs(features=tensor)) == ("inputs.features", "dimension 1 must be 3, got 4")


def test_inputs_that_disagree_about_an_axis_are_refused() -> None:
    field, description = fault(inputs(ids=np.zeros((3, 5), np.int32)))
    assert field == "inputs"
    assert description == "axis batch must have one size in all inputs, got 3 in ids, 2 in features"


def test_an_empty_axis_is_refused() -> None:
    field, description = fault(inputs(ids=np.zeros((2, 0), np.int32)))
    assert (field, description) == ("inputs.ids", "axis length must have at least 1, got 0")

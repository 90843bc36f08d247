"""Parts of calls become a batch."""

import numpy as np
import pytest

from shaperouter_service.functions import Part, join, joining
from shaperouter_service.tensors.checking import Sizes
from shaperouter_service.tensors.dtypes import DType
from shaperouter_service.tensors.specs import Axis, CallSpec, TensorSpec

SPEC = CallSpec(
    inputs=(TensorSpec(name="x", dtype=DType.FP32, shape=(None, None)),),
    outputs=(),
    batch=Axis(name="batch", inputs={"x": 0}),
    axes=(Axis(name="length", inputs={"x": 1}, pad={"x": -1.0}),),
)


def test_parts_are_padded_and_joined_in_their_order() -> None:
    long, short = np.arange(12, dtype=np.float32).reshape(4, 3), np.full((1, 2), 7, np.float32)
    parts = [
        Part(inputs={"x": long}, sizes=Sizes(rows=4, axes=(3,)), first=2, rows=2),
        Part(inputs={"x": short}, sizes=Sizes(rows=1, axes=(2,)), first=0, rows=1),
    ]
    joined = join(parts, SPEC, Sizes(rows=4, axes=(4,)))["x"]
    assert joined.tolist() == [[6, 7, 8, -1], [9, 10, 11, -1], [7, 7, -1, -1], [0, 0, 0, 0]]


def test_only_the_rows_of_a_part_are_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call may have a million rows, and thousands of parts."""
    padded: list[tuple[int, ...]] = []
    full = np.full

    def record(shape: list[int], *arguments: object) -> object:
        padded.append(tuple(shape))
        return full(shape, *arguments)

    monkeypatch.setattr(joining.np, "full", record)
    inputs = {"x": np.zeros((1_000, 3), np.float32)}
    part = Part(inputs=inputs, sizes=Sizes(rows=1_000, axes=(3,)), first=8, rows=8)
    join([part], SPEC, Sizes(rows=8, axes=(4,)))
    assert set(padded) == {(8, 4)}

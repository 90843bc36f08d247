"""The labels that the router adds to the scores of classifiers."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shaperouter_service.serving.inference import preparation
from shaperouter_service.serving.inference.labels import with_labels, worker_outputs
from shaperouter_service.tensors.checking import Sizes
from shaperouter_service.tensors.dtypes import DType
from shaperouter_service.tensors.specs import Axis, CallSpec, TensorSpec

SCORES = np.array([[0.1, 0.9], [2.0, -1.0]], np.float32)


def test_a_label_needs_the_scores_of_the_worker() -> None:
    assert worker_outputs(["label"]) == ["scores"]
    assert worker_outputs(["label", "scores"]) == ["scores"]
    assert worker_outputs(["embedding"]) == ["embedding"]


def test_the_label_is_that_of_the_highest_score() -> None:
    found = with_labels({"scores": SCORES}, ["label"], ["no", "yes"])
    assert list(found) == ["label"]
    assert found["label"].tolist() == [b"yes", b"no"]


def test_classes_without_names_are_numbered() -> None:
    found = with_labels({"scores": SCORES}, ["scores", "label"], [])
    assert list(found) == ["scores", "label"]
    assert found["label"].tolist() == [b"1", b"0"]


def test_each_token_has_a_label() -> None:
    found = with_labels({"scores": SCORES[None]}, ["label"], ["no", "yes"])
    assert found["label"].tolist() == [[b"yes", b"no"]]


def test_a_label_counts_with_the_scores_that_workers_give_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preparation, "MAX_ANSWER_BYTES", 19)
    scores = TensorSpec(name="scores", dtype=DType.FP32, shape=(None, 5))
    axis = Axis(name="batch", inputs={"x": 0}, outputs={"scores": 0})
    spec = CallSpec(inputs=(), outputs=(scores,), batch=axis, axes=())
    served: Any = SimpleNamespace(spec=spec)
    for outputs in (["label"], ["scores"]):
        (violation,) = preparation._answer_violations(outputs, served, Sizes(rows=1))
        assert violation.description.startswith("must have an answer of at most 19 bytes, got 20")
    assert not list(preparation._answer_violations(["other"], served, Sizes(rows=1)))

"""The labels that the router adds to the scores of classifiers."""

import numpy as np

from shaperouter_service.serving.inference.labels import with_labels, worker_outputs

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

"""Translates the examples of Classify and Regress to tensors, and scores to their results."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from shaperouter_service.edge.tfserving.signatures import CLASSES, SCORES, VALUES
from shaperouter_service.edge.tfserving.stubs.tensorflow.core.example.example_pb2 import Example
from shaperouter_service.edge.tfserving.stubs.tensorflow_serving.apis.classification_pb2 import (
    ClassificationResult,
)
from shaperouter_service.edge.tfserving.stubs.tensorflow_serving.apis.input_pb2 import Input
from shaperouter_service.edge.tfserving.stubs.tensorflow_serving.apis.regression_pb2 import (
    RegressionResult,
)
from shaperouter_service.errors import InvalidRequestError, Violation
from shaperouter_service.tensors.shapes import MAX_TENSOR_BYTES

Array: TypeAlias = "np.ndarray[Any, Any]"


def serialized_examples(given: Input) -> Array:
    """The examples of a request, serialized, with the features of their context.

    Raises:
        InvalidRequestError: There are none, or their context is too large for so many.
    """
    has_context = given.WhichOneof("kind") == "example_list_with_context"
    with_context = given.example_list_with_context
    examples = with_context.examples if has_context else given.example_list.examples
    if not examples:
        description = "must have at least 1 example, got 0"
        raise InvalidRequestError(Violation(field="input", description=description))
    # A context is in the request once, and in each example here.
    if (due := len(examples) * with_context.context.ByteSize()) > MAX_TENSOR_BYTES:
        rule = f"context must take at most {MAX_TENSOR_BYTES} bytes, once for each example"
        description = f"{rule}, got {due} for {len(examples)} examples"
        raise InvalidRequestError(Violation(field="input", description=description))
    rows = np.empty(len(examples), np.object_)
    for index, example in enumerate(examples):
        whole = Example()
        whole.CopyFrom(with_context.context)
        whole.MergeFrom(example)
        rows[index] = whole.SerializeToString()
    return rows


def classifications(outputs: Mapping[str, Array]) -> ClassificationResult:
    """The classes of each example: [rows, classes] of names, of scores, or of both."""
    result = ClassificationResult()
    classes, scores = outputs.get(CLASSES), outputs.get(SCORES)
    shape = next(iter(outputs.values())).shape
    for row in range(shape[0]):
        found = result.classifications.add()
        for column in range(shape[1]):
            found.classes.add(
                label="" if classes is None else classes[row, column].decode(errors="replace"),
                score=0.0 if scores is None else float(scores[row, column]),
            )
    return result


def regressions(outputs: Mapping[str, Array]) -> RegressionResult:
    """The value of each example: [rows] or [rows, 1].

    Raises:
        InvalidRequestError: The model gave another number of values, which it may if its signature
            leaves the size free.
    """
    values = outputs[VALUES]
    if values.size != len(values):
        rule = "must be a model that gives one value for each example"
        description = f"{rule}, got {VALUES} of shape {list(values.shape)}; call Predict for these"
        raise InvalidRequestError(Violation(field="model_spec.name", description=description))
    result = RegressionResult()
    for value in values.ravel().tolist():
        result.regressions.add(value=value)
    return result

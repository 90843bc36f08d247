"""Signatures and examples of TensorFlow Serving."""

from dataclasses import replace

import numpy as np
import pytest

from shaperouter_service.edge.tfserving.examples import (
    classifications,
    regressions,
    serialized_examples,
)
from shaperouter_service.edge.tfserving.model_spec import model_name, spec_of
from shaperouter_service.edge.tfserving.signatures import (
    CLASSIFY,
    PREDICT,
    REGRESS,
    method_of,
    signature_of,
)
from shaperouter_service.edge.tfserving.stubs.tensorflow.core.example.example_pb2 import Example
from shaperouter_service.edge.tfserving.stubs.tensorflow.core.framework.types_pb2 import DataType
from shaperouter_service.edge.tfserving.stubs.tensorflow_serving.apis.input_pb2 import Input
from shaperouter_service.edge.tfserving.stubs.tensorflow_serving.apis.model_pb2 import ModelSpec
from shaperouter_service.errors import InvalidRequestError, UnknownVersionError
from shaperouter_service.tensors.dtypes import DType
from shaperouter_service.tensors.specs import CallSpec, TensorSpec

EXAMPLES = TensorSpec(name="inputs", dtype=DType.BYTES, shape=(None,))
IMAGES = TensorSpec(name="images", dtype=DType.FP32, shape=(None, 8, 8, 3))
CLASSES = TensorSpec(name="classes", dtype=DType.BYTES, shape=(None, 3))
SCORES = TensorSpec(name="scores", dtype=DType.FP32, shape=(None, 3))
VALUES = TensorSpec(name="outputs", dtype=DType.FP32, shape=(None, 1))


def spec(*inputs: TensorSpec, outputs: tuple[TensorSpec, ...]) -> CallSpec:
    return CallSpec(inputs=inputs, outputs=outputs, batch=None)


@pytest.mark.parametrize(
    ("found", "method"),
    [
        (spec(EXAMPLES, outputs=(CLASSES, SCORES)), CLASSIFY),
        (spec(EXAMPLES, outputs=(SCORES,)), CLASSIFY),
        (spec(EXAMPLES, outputs=(VALUES,)), REGRESS),
        (spec(EXAMPLES, outputs=(replace(VALUES, shape=(None,)),)), REGRESS),
        (spec(EXAMPLES, outputs=(replace(VALUES, shape=(None, None)),)), REGRESS),
        (spec(EXAMPLES, outputs=(replace(VALUES, shape=(None, 3)),)), PREDICT),
        (spec(IMAGES, outputs=(CLASSES, SCORES)), PREDICT),
        (spec(EXAMPLES, outputs=(SCORES, VALUES)), PREDICT),
        (spec(EXAMPLES, IMAGES, outputs=(SCORES,)), PREDICT),
    ],
)
def test_a_signature_of_serialized_examples_may_classify_or_regress(
    found: CallSpec, method: str
) -> None:
    assert method_of(found) == method
    assert signature_of(found).method_name == method


def test_a_signature_has_names_types_and_shapes() -> None:
    found = signature_of(spec(IMAGES, outputs=(SCORES,)))
    images = found.inputs["images"]
    assert images.dtype == DataType.DT_FLOAT
    assert [dim.size for dim in images.tensor_shape.dim] == [-1, 8, 8, 3]
    assert found.outputs["scores"].name == "scores:0"


def test_a_model_has_version_1_and_one_signature() -> None:
    assert model_name(ModelSpec(name="m")) == "m"
    assert model_name(spec_of("m")) == "m"
    with pytest.raises(UnknownVersionError, match="has only version 1, got '2'"):
        model_name(ModelSpec(name="m", version={"value": 2}))
    with pytest.raises(UnknownVersionError, match="got 'stable'"):
        model_name(ModelSpec(name="m", version_label="stable"))
    with pytest.raises(InvalidRequestError, match="must be serving_default or empty, got 'other'"):
        model_name(ModelSpec(name="m", signature_name="other"))


def example(**features: float) -> Example:
    made = Example()
    for name, value in features.items():
        made.features.feature[name].float_list.value.append(value)
    return made


def test_examples_are_rows_of_serialized_features() -> None:
    given = Input(example_list={"examples": [example(a=1), example(a=2)]})
    rows = [Example.FromString(row) for row in serialized_examples(given)]
    assert rows == [example(a=1), example(a=2)]


def test_every_example_has_the_features_of_its_context() -> None:
    context = {"examples": [example(a=1)], "context": example(a=0, b=2)}
    (row,) = serialized_examples(Input(example_list_with_context=context))
    assert Example.FromString(row) == example(a=1, b=2)


def test_a_context_that_is_too_large_for_so_many_examples_is_refused() -> None:
    large = Example()
    large.features.feature["b"].bytes_list.value.append(bytes(2**20))
    context = {"examples": [Example()] * 32, "context": large}
    with pytest.raises(InvalidRequestError, match=r"input: context must take.*for 32 examples"):
        serialized_examples(Input(example_list_with_context=context))


@pytest.mark.parametrize("given", [Input(), Input(example_list={})])
def test_no_examples_are_refused(given: Input) -> None:
    with pytest.raises(InvalidRequestError, match="input: must have at least 1 example, got 0"):
        serialized_examples(given)


def test_classes_have_labels_and_scores_where_the_model_gives_them() -> None:
    scores = np.float32([[0.25, 0.75]])
    classes = np.array([[b"cat", b"dog"]], object)
    (found,) = classifications({"scores": scores, "classes": classes}).classifications
    assert [(each.label, each.score) for each in found.classes] == [("cat", 0.25), ("dog", 0.75)]
    (found,) = classifications({"scores": scores}).classifications
    assert [(each.label, each.score) for each in found.classes] == [("", 0.25), ("", 0.75)]


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_each_example_is_regressed_to_a_value(shape: tuple[int, ...]) -> None:
    found = regressions({"outputs": np.float32([1.5, 2.5]).reshape(shape)})
    assert [each.value for each in found.regressions] == [1.5, 2.5]


def test_several_values_of_an_example_are_no_regression() -> None:
    with pytest.raises(InvalidRequestError, match=r"one value for each.*of shape \[2, 3\]; call"):
        regressions({"outputs": np.zeros((2, 3), np.float32)})

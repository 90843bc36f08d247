"""Tensors of Open Inference over HTTP survive both of their forms, and broken ones are refused."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from shaperouter_service.edge.http.errors import HttpError
from shaperouter_service.edge.inference.http.answers import infer_answer
from shaperouter_service.edge.inference.http.bodies import (
    JSON_LENGTH,
    MAX_JSON_BYTES,
    Asked,
    generate_request,
    infer_request,
)
from shaperouter_service.edge.inference.requests import Array, InferRequest, InferResponse
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.tensors.dtypes import DType

HALF = (DType.FP16, DType.BF16)


def read(body: dict[str, Any] | str, tail: bytes = b"", length: str | None = None) -> Asked:
    text = body if isinstance(body, str) else json.dumps(body)
    content = text.encode()
    if tail and length is None:
        length = str(len(content))
    return infer_request(content + tail, length, model="m", version="")


def tensor(datatype: str = "FP32", shape: Any = (1,), **fields: Any) -> dict[str, Any]:
    return {"name": "x", "datatype": datatype, "shape": shape} | fields


def sent(array: Array, *, binary: bool) -> Array:
    """The tensor after it has been sent in an answer, and back in a request."""
    asked = Asked(request=InferRequest(model="m"), binary={"x": binary}, binary_by_default=False)
    answer = infer_answer(InferResponse(model="m", id="", outputs={"x": array}), asked)
    body = bytes(answer.body)
    length = answer.headers.get(JSON_LENGTH)
    head = body[: int(length)] if length else body
    inputs = json.dumps({"inputs": json.loads(head)["outputs"]}).encode()
    tail = body[len(head) :]
    found = infer_request(
        inputs + tail, str(len(inputs)) if length else None, model="m", version=""
    )
    return found.request.inputs["x"]


def fault(body: dict[str, Any] | str, tail: bytes = b"", length: str | None = None) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        read(body, tail, length)
    (violation,) = caught.value.violations
    return f"{violation.field}: {violation.description}"


@given(st.data(), st.sampled_from([each for each in DType if each is not DType.BYTES]))
def test_numbers_survive_as_binary_data(data: st.DataObject, dtype: DType) -> None:
    bits = np.dtype(f"u{dtype.numpy.itemsize}")
    shape = data.draw(arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    values = data.draw(arrays_of.arrays(bits, shape))
    array = (values & 1).view(dtype.numpy) if dtype is DType.BOOL else values.view(dtype.numpy)
    found = sent(array, binary=True)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found.view(bits), array.view(bits))


@given(st.data(), st.sampled_from([each for each in DType if each not in (*HALF, DType.BYTES)]))
def test_numbers_survive_as_json(data: st.DataObject, dtype: DType) -> None:
    shape = data.draw(arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    finite = {"allow_nan": False, "allow_infinity": False} if dtype.numpy.kind == "f" else {}
    elements = arrays_of.from_dtype(dtype.numpy, **finite)
    array = data.draw(arrays_of.arrays(dtype.numpy, shape, elements=elements))
    found = sent(array, binary=False)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found, array)


@given(st.lists(st.text(max_size=5)), st.booleans())
def test_texts_survive(texts: list[str], binary: bool) -> None:
    array = np.empty(len(texts), np.object_)
    array[:] = [text.encode() for text in texts]
    assert sent(array, binary=binary).tolist() == array.tolist()


def test_long_json_is_written_in_parts() -> None:
    array = np.arange(50_000, dtype=np.int32)
    np.testing.assert_array_equal(sent(array, binary=False), array)


def test_data_may_be_nested_like_the_shape() -> None:
    found = read({"inputs": [tensor("INT8", [2, 1, 2], data=[[[1, 2]], [[3, 4]]])]})
    assert found.request.inputs["x"].tolist() == [[[1, 2]], [[3, 4]]]


def test_a_request_may_have_json_beside_binary_data() -> None:
    inputs = [
        tensor("INT16", [2], parameters={"binary_data_size": 4}),
        tensor("FP32", [1], data=[0.5]) | {"name": "y"},
        tensor("BYTES", [1], parameters={"binary_data_size": 5}) | {"name": "z"},
    ]
    found = read({"inputs": inputs}, b"\1\0\0\1" + b"\1\0\0\0a").request.inputs
    assert {name: array.tolist() for name, array in found.items()} == {
        "x": [1, 256],
        "y": [0.5],
        "z": [b"a"],
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"x": False, "y": False}),
        ({"parameters": {"binary_data_output": True}}, {"x": True, "y": True}),
        (
            {
                "parameters": {"binary_data_output": True},
                "outputs": [{"name": "x", "parameters": {"binary_data": False}}, {"name": "y"}],
            },
            {"x": False, "y": True},
        ),
    ],
)
def test_a_request_says_which_outputs_are_binary(
    given: dict[str, Any], expected: dict[str, bool]
) -> None:
    asked = read(given | {"id": "7", "model_name": "m"})
    assert {name: asked.is_binary(name) for name in expected} == expected
    assert (asked.request.id, asked.request.parameters) == ("7", {})


SIZE = "binary_data_size"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (tensor("FLOAT"), "inputs.x: datatype must be one of BOOL, UINT8"),
        (tensor(shape=None), "inputs.x: shape must have no negative size, got [-1]"),
        (tensor(shape=[-1]), "inputs.x: shape must have no negative size, got [-1]"),
        (tensor(shape=["1"]), "inputs.x: shape must be a list of integers of 64 bits"),
        (tensor(shape=[2**63]), "inputs.x: shape must be a list of integers of 64 bits"),
        (tensor(shape=[True]), "inputs.x: shape must be a list of integers of 64 bits"),
        (tensor(shape=[2**40], data=[]), f"must have at most 33554432 bytes, got {2**42} (FP32"),
        (tensor("BYTES", [2**40], data=[]), "must have at most 33554432 bytes"),
        (tensor(shape=[1] * 33), "shape must have at most 32 dimensions, got 33"),
        (tensor(shape=[2], data=[1]), "data must have 2 elements for the shape [2], got 1"),
        (tensor(shape=[2, 2], data=[1]), "data must have 4 elements for the shape [2, 2], got 1"),
        (
            tensor(shape=[2, 2], data=[[1, 2], [3]]),
            "nested like the shape [2, 2], with 2 elements in each list of dimension 1, got 1",
        ),
        (tensor(shape=[2, 1], data=[[1], 2]), "each list of dimension 1, got 2"),
        (tensor(shape=[1], data=[[1]]), "data must be numbers for FP32, got a list"),
        (tensor(data=3), "data must be a list, got 3"),
        (tensor(), "data must be a list, got None"),
        (tensor(data=["1"]), "data must be numbers for FP32, got '1'"),
        (tensor(data=[True]), "data must be numbers for FP32, got True"),
        (tensor(data=[1e39]), "data must be within the range of FP32, got a larger number"),
        (tensor(data=[10**400]), "data must be within the range of FP32"),
        (tensor("INT32", data=[1.5]), "data must be integers for INT32, got 1.5"),
        (tensor("INT32", data=[1.0]), "data must be integers for INT32, got 1.0"),
        (tensor("INT8", data=[128]), "data must be from -128 to 127 for INT8, got 128"),
        (tensor("UINT64", data=[-1]), f"data must be from 0 to {2**64 - 1} for UINT64, got -1"),
        (tensor("BOOL", data=[1]), "data must be true or false for BOOL, got 1"),
        (tensor("BYTES", data=[1]), "data must be texts for BYTES, got 1"),
        (tensor("FP16", data=[1]), "must be binary data, as JSON has no form for FP16"),
        (tensor(data=[1], parameters={SIZE: 0}), f"must not have data together with {SIZE}"),
        (tensor(parameters={SIZE: 4}), f"{SIZE} must be from 0 to 0, the bytes that are left"),
        (tensor(parameters={SIZE: -1}), f"{SIZE} must be from 0 to 0"),
        (tensor(parameters={SIZE: True}), f"{SIZE} must be from 0 to 0"),
        (tensor(data=[1], parameters={"shared_memory_region": "r"}), "got 'shared_memory_region'"),
        (tensor(data=[1], contents={}), "inputs.x.contents: is unknown"),
        (tensor(data=[1], parameters=3), "inputs.x.parameters: must be an object, got 3"),
        (tensor(data=[1]) | {"name": ""}, "inputs[0].name: must be set"),
        (tensor(data=[1]) | {"name": 3}, "inputs[0].name: must be a text, got 3"),
    ],
    ids=str,
)
def test_a_broken_tensor_is_refused_with_name_limit_and_value(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read({"inputs": [given]})
    assert message in str(caught.value)
    assert str(caught.value).startswith("inputs")


@pytest.mark.parametrize(
    ("given", "tail", "message"),
    [
        (
            tensor(parameters={SIZE: 3}),
            b"abc",
            "must have 4 bytes for FP32 of the shape [1], got 3",
        ),
        (tensor(parameters={SIZE: 8}), bytes(4), f"{SIZE} must be from 0 to 4"),
        (tensor(parameters={SIZE: 4}), bytes(5), f"must have a {SIZE} of 5 in all"),
        (tensor(data=[1]), bytes(5), f"inputs: must have a {SIZE} of 5 in all"),
        (tensor("BOOL", parameters={SIZE: 1}), b"\2", "bytes of 0 or 1 for BOOL, got 2"),
        (tensor("BYTES", parameters={SIZE: 5}), b"\x09\0\0\0a", "must have 9 bytes"),
        (tensor("BYTES", parameters={SIZE: 2}), b"\1\0", "must have 1 elements, got 0"),
        (tensor(data=[1], parameters={SIZE: 4}), bytes(4), "must not have data together with"),
    ],
    ids=str,
)
def test_binary_data_that_do_not_fit_are_refused(
    given: dict[str, Any], tail: bytes, message: str
) -> None:
    assert message in fault({"inputs": [given]}, tail)


@pytest.mark.parametrize("length", ["", "x", "-1", "1.5", "٣", "9" * 5000])
def test_the_length_of_the_json_is_a_number(length: str) -> None:
    assert fault({}, length=length).startswith(f"{JSON_LENGTH}: must be a number of bytes, got")


def test_the_length_of_the_json_is_within_the_body() -> None:
    assert fault({}, length="3").endswith("must be at most 2, the bytes of the body, got 3")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"id": 3}, "id: must be a text, got 3"),
        ({"unheard": 3}, "unheard: is unknown"),
        ({"inputs": {}}, "inputs: must be a list, got an object"),
        ({"inputs": [3]}, "inputs[0]: must be an object, got 3"),
        ({"parameters": []}, "parameters: must be an object, got a list"),
        ({"parameters": {"binary_data_output": 1}}, "parameters.binary_data_output: must be true"),
        ({"outputs": [{}]}, "outputs[0].name: must be set"),
        ({"outputs": [{"name": "y", "shape": []}]}, "outputs[0].shape: is unknown"),
        (
            {"outputs": [{"name": "y", "parameters": {"binary_data": "yes"}}]},
            "outputs[0].binary_data: must be true or false, got 'yes'",
        ),
        ({"model_name": "n"}, "model_name: must be 'm', as in the path, got 'n'"),
        ({"inputs": [tensor(data=[1])] * 2}, "inputs.x: must occur only once"),
    ],
    ids=str,
)
def test_fields_that_cannot_be_used_are_refused(given: dict[str, Any], message: str) -> None:
    assert fault(given).startswith(message)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "must be JSON"),
        ("[1]", "must be a JSON object"),
        ('{"id": "a", "id": "b"}', "'id' occurs twice"),
        ('{"inputs": [NaN]}', "numbers must be finite, got NaN"),
        ("[" * 10**5, "must be JSON"),
    ],
)
def test_json_is_read_strictly(text: str, told: str) -> None:
    with pytest.raises(HttpError, match=told) as caught:
        read(text)
    assert caught.value.status == 400


def test_nested_brackets_are_refused_and_not_shown() -> None:
    deep = "[" * 190 + "]" * 190
    asked = f'{{"inputs": [{{"name": "x", "shape": {deep}, "datatype": "FP32", "data": {deep}}}]}}'
    assert fault(asked) == "inputs.x: shape must be a list of integers of 64 bits"


def test_json_has_a_limit_that_binary_data_has_not() -> None:
    with pytest.raises(HttpError, match="send large tensors as binary data") as caught:
        read({"id": "x" * MAX_JSON_BYTES})
    assert caught.value.status == 413
    shape = [MAX_JSON_BYTES + 1]
    given = tensor("UINT8", shape, parameters={SIZE: shape[0]})
    assert read({"inputs": [given]}, bytes(shape[0])).request.inputs["x"].size == shape[0]


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (np.float16([1]), "JSON has no form for FP16"),
        (np.float32([np.nan]), "elements that are not finite"),
        (np.array([b"\xff"], np.object_), "elements that are not UTF-8"),
    ],
    ids=str,
)
def test_an_answer_that_json_cannot_have_is_refused(array: Array, told: str) -> None:
    asked = Asked(request=InferRequest(model="m"), binary={}, binary_by_default=False)
    response = InferResponse(model="m", id="", outputs={"y": array})
    with pytest.raises(InvalidRequestError) as caught:
        infer_answer(response, asked)
    assert str(caught.value).startswith("outputs.y: must be requested with binary_data: ")
    assert told in str(caught.value)


def test_fields_of_the_generate_extension_are_inputs_and_parameters() -> None:
    body = {"id": "7", "text_input": "a", "seed": None, "parameters": {"top_k": 3}}
    found = generate_request(json.dumps(body).encode(), model="m", version="1")
    assert (found.id, found.fields, found.parameters) == ("7", {"text_input": "a"}, {"top_k": 3})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "text_input: is required"),
        ({"text_input": "a", "id": 3}, "id: must be a text, got 3"),
        ({"text_input": "a", "parameters": 3}, "parameters: must be an object, got 3"),
    ],
)
def test_requests_to_generate_need_a_text(body: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        generate_request(json.dumps(body).encode(), model="m", version="")

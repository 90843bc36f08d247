"""Errors for bytes that are not a valid message."""

import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given, settings
from hypothesis import strategies as st

from shaperouter.v1 import generation_pb2, graph_pb2, model_pb2, worker_pb2
from shaperouter_service.edge.inference.stubs import grpc_service_pb2
from shaperouter_service.edge.tfserving.stubs.tensorflow_serving.apis import (
    classification_pb2,
    predict_pb2,
)
from shaperouter_service.errors import MAX_VIOLATIONS_SHOWN, InvalidRequestError
from shaperouter_service.rpc.malformed import describe

MESSAGES: list[type[Message]] = [
    generation_pb2.GenerateRequest,
    generation_pb2.GenerateStreamRequest,
    generation_pb2.GenerateResponse,
    model_pb2.GetModelRequest,
    graph_pb2.ListGraphsRequest,
    worker_pb2.RunRequest,
    worker_pb2.WatchResponse,
    grpc_service_pb2.ModelInferRequest,
    predict_pb2.PredictRequest,
    classification_pb2.ClassificationRequest,
]


def field(number: int, value: bytes) -> bytes:
    """A length-delimited field: a string, bytes or a message, shorter than 128 bytes."""
    return bytes([number << 3 | 2, len(value)]) + value


def fields_of(error: InvalidRequestError) -> list[str]:
    return [violation.field for violation in error.violations]


def parse(data: bytes, message_type: type[Message]) -> None:
    """Parses as the servers do.

    Raises:
        InvalidRequestError: It cannot be parsed.
    """
    try:
        message_type.FromString(data)
    except DecodeError:
        raise describe(data, message_type) from None


def refusal(data: bytes, message_type: type[Message]) -> InvalidRequestError | None:
    """What is wrong with the bytes, if anything is."""
    try:
        parse(data, message_type)
    except InvalidRequestError as error:
        return error
    return None


def test_text_that_is_not_utf8_is_named_with_byte_and_offset() -> None:
    data = field(2, b"caf\xe9")
    with pytest.raises(InvalidRequestError) as error:
        parse(data, generation_pb2.GenerateRequest)
    (violation,) = error.value.violations
    assert violation.field == "text"
    assert "UTF-8" in violation.description
    assert "0xe9 at offset 3" in violation.description


def test_a_bad_string_of_a_list_within_a_message_is_named() -> None:
    # Fields of two digits have tags of two bytes.
    stop = bytes([20 << 3 & 0x7F | 0x80 | 2, 20 >> 4, 1]) + b"\xff"
    with pytest.raises(InvalidRequestError) as error:
        parse(field(4, stop), generation_pb2.GenerateRequest)
    assert fields_of(error.value) == ["options.stop"]


@pytest.mark.parametrize(
    ("message_type", "number", "name"),
    [
        (generation_pb2.GenerateRequest, 1, "model"),
        (generation_pb2.GenerateStreamRequest, 2, "text"),
        (model_pb2.GetModelRequest, 1, "name"),
        (graph_pb2.ListGraphsRequest, 1, "model"),
        (worker_pb2.RunRequest, 1, "request_id"),
    ],
)
def test_a_bad_string_at_the_top_is_named(
    message_type: type[Message], number: int, name: str
) -> None:
    error = describe(field(number, b"\xff"), message_type)
    assert fields_of(error) == [name]


def test_a_bad_string_of_a_nested_message_is_named_by_its_path() -> None:
    # completion.request_id
    data = field(2, field(1, b"\xff"))
    assert fields_of(describe(data, generation_pb2.GenerateResponse)) == ["completion.request_id"]


def test_a_bad_string_of_an_imported_message_is_named_by_its_path() -> None:
    # graphs[0].signature.model, defined in two other files
    data = field(5, field(1, field(1, b"\xff")))
    (name,) = fields_of(describe(data, worker_pb2.WatchResponse))
    assert name.replace("[0]", "") == "graphs.signature.model"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (field(5, field(1, b"\xff")), "inputs.name"),
        (field(4, field(1, b"\xff")), "parameters.key"),
        (field(4, field(2, field(3, b"\xff"))), "parameters.value.string_param"),
    ],
    ids=["message defined inside another", "key of a map", "value of a map"],
)
def test_a_bad_string_of_a_definition_inside_another_is_named(data: bytes, name: str) -> None:
    assert fields_of(describe(data, grpc_service_pb2.ModelInferRequest)) == [name]


def test_every_bad_string_is_named() -> None:
    data = field(1, b"\xff") + field(2, b"\xfe")
    assert fields_of(describe(data, generation_pb2.GenerateRequest)) == ["model", "text"]


def test_good_strings_beside_a_bad_one_are_not_named() -> None:
    data = field(1, "café".encode()) + field(2, b"\xfe")
    assert fields_of(describe(data, generation_pb2.GenerateRequest)) == ["text"]


def test_a_bad_string_that_is_sent_again_is_named() -> None:
    # If a field occurs twice, the last one counts, but the first is parsed, too.
    data = field(2, b"\xff") + field(2, b"good")
    with pytest.raises(InvalidRequestError) as error:
        parse(data, generation_pb2.GenerateRequest)
    assert fields_of(error.value) == ["text"]


def test_only_the_first_of_many_bad_strings_are_named() -> None:
    error = describe(field(1, b"\xff") * 10_000, generation_pb2.GenerateRequest)
    assert fields_of(error) == ["model"] * MAX_VIOLATIONS_SHOWN


@pytest.mark.parametrize(
    "data",
    [b"\xff", b"junk", field(2, b"cut off")[:-1], b"\x12", b"\x0b", field(3, b"\x0a")],
    ids=repr,
)
def test_bytes_that_are_no_message_are_refused_with_the_type(data: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="not a protobuf message") as error:
        parse(data, generation_pb2.GenerateRequest)
    assert fields_of(error.value) == ["shaperouter.v1.GenerateRequest"]


BYTES = st.binary(max_size=200)
# Nearly valid: fields of the right form, nested, with values that are often broken.
NEARLY = st.recursive(
    st.sampled_from([b"", b"good", "é".encode(), b"\xff", b"\xc3", b"\x08\x01"]),
    lambda inner: st.lists(
        st.builds(field, st.integers(1, 15), inner.filter(lambda value: len(value) < 128)),
        max_size=3,
    ).map(b"".join),
    max_leaves=6,
)


@given(message_type=st.sampled_from(MESSAGES), data=BYTES | NEARLY)
@settings(max_examples=200)
def test_any_bytes_are_a_message_or_refused(message_type: type[Message], data: bytes) -> None:
    error = refusal(data, message_type)
    assert error is None or error.violations
    assert error is None or all(v.field and v.description for v in error.violations)

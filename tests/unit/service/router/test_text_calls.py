"""Calls of text encoders with texts: the token ids that workers get, and limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc import StatusCode, aio

from harness.fake_model import MAX_LENGTH, VOCAB_SIZE, describe_encoder
from shaperouter_service.wire.tensors import tensors_from_messages

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Detail = Callable[[aio.AioRpcError, type[Message]], Any]
Encode = Callable[[str], Sequence[int]]

ENCODER = [describe_encoder("encoder")]
LONG = "graphs " * 60


def texts(*values: str | bytes) -> np.ndarray[Any, Any]:
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    return np.array(encoded, dtype=object)


def embed(worker: FakeWorker) -> None:
    """Answers with the numbers of tokens, twice."""
    worker.answer = lambda inputs: {
        "embedding": np.repeat(
            inputs["attention_mask"].sum(axis=1, keepdims=True).astype(np.float32), 2, axis=1
        )
    }


async def violations(router: Router, detail: Detail, **fields: Any) -> dict[str, str]:
    error = await router.error(router.infer(model="encoder", **fields))
    assert error.code() is StatusCode.INVALID_ARGUMENT, error
    found = detail(error, error_details_pb2.BadRequest).field_violations
    return {violation.field: violation.description for violation in found}


def test_texts_are_tokenized_and_padded_to_the_longest(play: Play, encode: Encode) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        embed(worker)
        long, short = "TensorFlow is a library.", "Zoë"
        response = await router.infer(model="encoder", inputs={"text": texts(long, short)})
        (call,) = worker.calls
        inputs = tensors_from_messages(call.inputs, field="inputs")
        ids, longest = inputs["input_ids"], len(encode(long))
        assert ids.dtype == np.int32
        assert ids.shape == (2, longest)
        assert ids[0].tolist() == encode(long)
        assert ids[1, : len(encode(short))].tolist() == encode(short)
        assert inputs["attention_mask"].sum(axis=1).tolist() == [longest, len(encode(short))]
        assert not inputs["token_type_ids"].any()
        (embedding,) = tensors_from_messages(response.outputs, field="outputs").values()
        assert embedding[:, 0].tolist() == [longest, len(encode(short))]
        tokens = longest + len(encode(short))
        assert router.metric("prompt_tokens_total", model="encoder") == tokens

    play(scenario, called=ENCODER)


def test_a_text_that_is_too_long_is_refused(play: Play, detail: Detail, encode: Encode) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        found = await violations(router, detail, inputs={"text": texts("short", LONG)})
        assert found == {
            "inputs.text[1]": f"must have at most {MAX_LENGTH} tokens with special tokens "
            f"(max_length of encoder), got {len(encode(LONG))}; set truncate to cut what is too "
            "long"
        }
        assert not worker.calls

    play(scenario, called=ENCODER)


def test_a_text_without_tokens_is_refused(play: Play, detail: Detail) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        found = await violations(router, detail, inputs={"text": texts("a", "")})
        assert found == {"inputs.text[1]": "must have a token, got none"}
        ids = np.ones((2, 3), np.int32)
        mask = np.array([[1, 0, 0], [0, 0, 0]], np.int32)
        found = await violations(router, detail, inputs={"input_ids": ids, "attention_mask": mask})
        assert found == {"inputs.attention_mask": "must have a 1 in each row, got none in row 1"}
        assert not worker.calls

    play(scenario, called=ENCODER)


def test_a_text_that_is_too_long_is_cut_on_request(play: Play, encode: Encode) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        embed(worker)
        await router.infer(model="encoder", inputs={"text": texts(LONG)}, truncate=True)
        inputs = tensors_from_messages(worker.calls[0].inputs, field="inputs")
        assert inputs["input_ids"][0].tolist() == encode(LONG)[:MAX_LENGTH]

    play(scenario, called=ENCODER)


async def read(router: Router, worker: FakeWorker, **inputs: Any) -> list[int]:
    """The token ids that a worker gets for a text, or for a pair of texts."""
    embed(worker)
    await router.infer(model="encoder", inputs=inputs)
    sent = tensors_from_messages(worker.calls[0].inputs, field="inputs")
    ids: list[int] = sent["input_ids"][0].tolist()
    return ids


def encoder_with(**fields: Any) -> list[Any]:
    model = describe_encoder("encoder")
    model.MergeFrom(type(model)(**fields))
    return [model]


def test_a_models_prompt_is_put_before_a_text(play: Play, encode: Encode) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        assert await read(router, worker, text=texts("Zoë")) == encode("query: Zoë")

    play(scenario, called=encoder_with(text_prompt="query: "))


def test_a_models_prompt_is_not_put_before_the_texts_of_a_pair(play: Play, encode: Encode) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        ids = await read(router, worker, text=texts("one"), text_pair=texts("two"))
        assert ids == [*encode("one"), *encode("two")]

    play(scenario, called=encoder_with(text_prompt="query: "))


def test_prompt_and_texts_become_lowercase_if_the_model_says_so(play: Play, encode: Encode) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        assert await read(router, worker, text=texts("ZOË")) == encode("query: zoë")

    play(scenario, called=encoder_with(text_prompt="Query: ", lowercases_text=True))


def test_both_texts_of_a_pair_become_lowercase(play: Play, encode: Encode) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        ids = await read(router, worker, text=texts("ONE"), text_pair=texts("TWO"))
        assert ids == [*encode("one"), *encode("two")]

    play(scenario, called=encoder_with(lowercases_text=True))


@pytest.mark.parametrize(
    ("inputs", "field", "fault"),
    [
        ({"text": texts(b"\xff")}, "inputs.text[0]", "must be UTF-8"),
        ({"text": texts()}, "inputs.text", "must have the shape n or nx1"),
        ({"text": texts(*[""] * 8193)}, "inputs.text", "must have at most 8192 texts, got 8193"),
        ({"text": np.zeros(1, np.int32)}, "inputs.text", "must be BYTES, got INT32"),
        ({"text_pair": texts("a")}, "inputs.text", "is required"),
        (
            {"text": texts("a"), "text_pair": texts("a", "b")},
            "inputs.text_pair",
            "must have as many texts as text, 1, got 2",
        ),
        (
            {"text": texts("a"), "input_ids": np.zeros((1, 1), np.int32)},
            "inputs.text",
            "must come without token ids and other inputs, got input_ids",
        ),
        (
            {"input_ids": np.full((1, 2), VOCAB_SIZE, np.int32)},
            "inputs.input_ids",
            f"must be from 0 to {VOCAB_SIZE - 1}, got {VOCAB_SIZE} at [0, 1]",
        ),
        ({"text": texts("x" * 10**5)}, "inputs.text[0]", "must have at most 8192 characters"),
    ],
)
def test_texts_that_cannot_be_read_are_refused(
    play: Play, detail: Detail, inputs: dict[str, Any], field: str, fault: str
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        found = await violations(router, detail, inputs=inputs)
        assert fault in found[field]
        assert not worker.calls

    play(scenario, called=ENCODER)


def test_token_ids_alone_are_read_as_one_text(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        embed(worker)
        ids = np.array([[1, 2, 3]], np.int32)
        await router.infer(model="encoder", inputs={"input_ids": ids})
        inputs = tensors_from_messages(worker.calls[0].inputs, field="inputs")
        assert inputs["attention_mask"].tolist() == [[1, 1, 1]]
        assert inputs["token_type_ids"].tolist() == [[0, 0, 0]]

    play(scenario, called=ENCODER)


@pytest.mark.parametrize("wrong", [2, -1])
def test_a_type_that_the_model_does_not_know_is_refused(
    play: Play, detail: Detail, wrong: int
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        inputs = {
            "input_ids": np.array([[1, 2, 3]], np.int32),
            "token_type_ids": np.array([[0, 1, wrong]], np.int32),
        }
        found = await violations(router, detail, inputs=inputs)
        assert found == {"inputs.token_type_ids": f"must be from 0 to 1, got {wrong} at [0, 2]"}

    play(scenario, called=ENCODER)


def test_types_are_not_checked_if_the_worker_does_not_tell_their_number(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        embed(worker)
        inputs = {
            "input_ids": np.array([[1, 2, 3]], np.int32),
            "token_type_ids": np.array([[0, 1, 2]], np.int32),
        }
        await router.infer(model="encoder", inputs=inputs)
        assert len(worker.calls) == 1

    untold = describe_encoder("encoder")
    untold.ClearField("token_types")
    play(scenario, called=[untold])


def test_without_a_tokenizer_texts_are_refused(play: Play, detail: Detail) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        found = await violations(router, detail, inputs={"text": texts("a")})
        assert found == {
            "inputs.text": "encoder has no tokenizer, so it takes token ids instead of texts"
        }

    play(scenario, called=ENCODER, text=False)

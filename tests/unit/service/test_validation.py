"""Checks of requests: what is refused, and what is said about it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any, cast

import pytest
from google.rpc import error_details_pb2
from hypothesis import given
from hypothesis import strategies as st

from harness.default_options import default_options
from shaperouter.v1 import generation_pb2, model_pb2
from shaperouter_service import limits
from shaperouter_service.api.preparation import PreparedRequest, prepare
from shaperouter_service.api.validation import GenerateAny
from shaperouter_service.errors import InvalidRequestError, Violation
from shaperouter_service.rpc.status import to_status
from shaperouter_service.text import Tokenizer

MODEL = model_pb2.Model(
    name="tiny",
    tokenizer="GPT2Tokenizer",
    vocab_size=100,
    max_length=32,
    default_options=default_options(),
    ladders=model_pb2.Ladders(
        lanes=[model_pb2.LaneLadders(beams=1), model_pb2.LaneLadders(beams=4)]
    ),
)
MUTE_MODEL = model_pb2.Model(
    name="mute", vocab_size=100, max_length=1024, default_options=default_options()
)
HEURISTIC = generation_pb2.EARLY_STOPPING_HEURISTIC


class Letters:
    """A tokenizer of one token for each letter: its place in the alphabet, 1 for any other."""

    async def encode(self, text: str) -> list[int]:
        return [1 + max("abcdefghijklmnopqrstuvwxyz~".find(letter), 0) for letter in text]

    async def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        # One token beyond the model's vocabulary, as tokenizers of padded checkpoints have.
        return [
            [100 if token == 27 else token for token in await self.encode(word.strip())]
            for word in words
        ]


def prepared(request: GenerateAny, model: model_pb2.Model = MODEL) -> PreparedRequest:
    tokenizer = cast("Tokenizer", Letters()) if model.tokenizer else None
    return asyncio.run(prepare(request, model, tokenizer))


def violations(request: GenerateAny, model: model_pb2.Model = MODEL) -> Sequence[Violation]:
    with pytest.raises(InvalidRequestError) as error:
        prepared(request, model)
    return error.value.violations


def with_text(text: str, **options: Any) -> generation_pb2.GenerateRequest:
    return generation_pb2.GenerateRequest(
        text=text, options=generation_pb2.GenerationOptions(**options)
    )


def with_ids(*ids: int, **options: Any) -> generation_pb2.GenerateRequest:
    return generation_pb2.GenerateRequest(
        token_ids=generation_pb2.TokenIds(ids=ids),
        options=generation_pb2.GenerationOptions(**options),
    )


def bias(token_id: int, value: float = 1.0) -> generation_pb2.LogitBias:
    return generation_pb2.LogitBias(token_id=token_id, bias=value)


def run_of(*ids: int) -> generation_pb2.TokenIds:
    return generation_pb2.TokenIds(ids=ids)


# Request, field that is blamed, what the description must hold: the limit and the value.
PROMPT_VIOLATIONS: list[tuple[str, generation_pb2.GenerateRequest, str, list[str]]] = [
    ("no prompt", generation_pb2.GenerateRequest(), "text", ["text", "token_ids", "none"]),
    (
        "both",
        generation_pb2.GenerateRequest(text="x", token_ids=generation_pb2.TokenIds(ids=[1])),
        "text",
        ["together with token_ids"],
    ),
    (
        "both, empty",
        generation_pb2.GenerateRequest(text="", token_ids=generation_pb2.TokenIds()),
        "text",
        ["together with token_ids"],
    ),
    ("empty text", with_text(""), "text", ["must not be empty"]),
    ("no ids", with_ids(), "token_ids.ids", ["must not be empty", "got 0"]),
    ("id at the end", with_ids(1, 100), "token_ids.ids[1]", ["0 to 99", "got 100"]),
    ("negative id", with_ids(-1), "token_ids.ids[0]", ["0 to 99", "got -1"]),
    ("largest id", with_ids(2**31 - 1), "token_ids.ids[0]", ["0 to 99", "got 2147483647"]),
    ("long text", with_text("x" * 32), "text", ["at most 31", "tiny", "got 32"]),
    ("long ids", with_ids(*[1] * 500), "token_ids.ids", ["at most 31", "tiny", "got 500"]),
]

# Options, field that is blamed, what the description must hold; after a prompt of ten tokens.
OPTION_VIOLATIONS: list[tuple[dict[str, Any], str, list[str]]] = [
    ({"max_new_tokens": 23}, "max_new_tokens", ["at most 22", "prompt of 10", "32", "got 23"]),
    ({"max_new_tokens": 2**31 - 1}, "max_new_tokens", ["at most 22", "got 2147483647"]),
    ({"max_new_tokens": 0}, "max_new_tokens", ["at least 1", "got 0"]),
    ({"max_new_tokens": -1}, "max_new_tokens", ["at least 1", "got -1"]),
    ({"temperature": 0.0}, "temperature", ["from 1e-06 to 1e+06", "do_sample", "got 0"]),
    ({"temperature": -0.5}, "temperature", ["from 1e-06 to 1e+06", "got -0.5"]),
    ({"temperature": math.nan}, "temperature", ["from 1e-06 to 1e+06", "got nan"]),
    ({"temperature": math.inf}, "temperature", ["from 1e-06 to 1e+06", "got inf"]),
    # On the device these would be zero and infinite.
    ({"temperature": 1e-50}, "temperature", ["from 1e-06", "got 1e-50"]),
    ({"temperature": 1e39}, "temperature", ["to 1e+06", "got 1e+39"]),
    ({"seed": -1}, "seed", ["0 to 9223372036854775807", "got -1"]),
    ({"eos_token_ids": range(9)}, "eos_token_ids", ["at most 8", "got 9"]),
    ({"eos_token_ids": [5, 100]}, "eos_token_ids[1]", ["0 to 99", "got 100"]),
    ({"eos_token_ids": [-2]}, "eos_token_ids[0]", ["0 to 99", "got -2"]),
    ({"top_k": -1}, "top_k", ["from 0 to 100", "vocab_size of tiny", "got -1"]),
    ({"top_k": 101}, "top_k", ["from 0 to 100", "got 101"]),
    ({"top_p": 0.0}, "top_p", ["above 0 and at most 1", "got 0"]),
    ({"top_p": 1.25}, "top_p", ["above 0 and at most 1", "got 1.25"]),
    ({"top_p": math.nan}, "top_p", ["above 0", "got nan"]),
    ({"min_p": -0.25}, "min_p", ["from 0 to 1", "got -0.25"]),
    ({"min_p": math.nan}, "min_p", ["from 0 to 1", "got nan"]),
    ({"typical_p": 0.0}, "typical_p", ["above 0 and at most 1", "got 0"]),
    ({"typical_p": math.nan}, "typical_p", ["above 0", "got nan"]),
    ({"repetition_penalty": 0.0}, "repetition_penalty", ["from 0.001 to 1000", "got 0"]),
    ({"repetition_penalty": 1001.0}, "repetition_penalty", ["to 1000", "got 1001"]),
    ({"repetition_penalty": math.nan}, "repetition_penalty", ["to 1000", "got nan"]),
    ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size", ["at least 0", "got -1"]),
    ({"min_new_tokens": -1}, "min_new_tokens", ["at least 0", "got -1"]),
    ({"min_new_tokens": 23}, "min_new_tokens", ["at most 22", "prompt of 10", "got 23"]),
    (
        {"min_new_tokens": 6, "max_new_tokens": 5},
        "min_new_tokens",
        ["at most 5 (max_new_tokens)", "got 6"],
    ),
    ({"num_beams": 0}, "num_beams", ["from 1 to 4", "tiny", "got 0"]),
    ({"num_beams": 5}, "num_beams", ["from 1 to 4", "tiny", "got 5"]),
    ({"num_return_sequences": 0}, "num_return_sequences", ["at least 1", "got 0"]),
    (
        {"num_return_sequences": 2},
        "num_return_sequences",
        ["must be 1 without sampling and without beam search", "got 2"],
    ),
    (
        {"num_return_sequences": 17, "do_sample": True},
        "num_return_sequences",
        ["at most 16", "got 17"],
    ),
    (
        {"num_return_sequences": 4, "num_beams": 3},
        "num_return_sequences",
        ["at most 3 (num_beams)", "got 4"],
    ),
    (
        {"num_return_sequences": 4, "num_beams": 3, "do_sample": True},
        "num_return_sequences",
        ["at most 3 (num_beams)", "got 4"],
    ),
    ({"length_penalty": 2.0}, "length_penalty", ["num_beams above 1", "got 2"]),
    ({"length_penalty": -11.0, "num_beams": 2}, "length_penalty", ["-10 to 10", "got -11"]),
    ({"length_penalty": math.nan, "num_beams": 2}, "length_penalty", ["to 10", "got nan"]),
    (
        {"early_stopping": HEURISTIC},
        "early_stopping",
        ["num_beams above 1", "got EARLY_STOPPING_HEURISTIC"],
    ),
    (
        {"early_stopping": 0, "num_beams": 2},
        "early_stopping",
        ["one of EARLY_STOPPING_HEURISTIC", "got 0"],
    ),
    ({"early_stopping": 99, "num_beams": 2}, "early_stopping", ["one of", "got 99"]),
    ({"logprobs": -1}, "logprobs", ["from 0 to 20", "got -1"]),
    ({"logprobs": 21}, "logprobs", ["from 0 to 20", "got 21"]),
    ({"logprobs": 1, "num_beams": 2}, "logprobs", ["0 with num_beams above 1", "got 1"]),
    ({"stop": ["x"] * 17}, "stop", ["at most 16 strings", "got 17"]),
    ({"stop": ["x", ""]}, "stop[1]", ["from 1 to 256 characters", "got 0"]),
    ({"stop": ["é" * 257]}, "stop[0]", ["from 1 to 256 characters", "got 257"]),
    (
        {"stop": ["x"], "num_beams": 2},
        "stop",
        ["empty with num_beams above 1, which is 2", "got 1"],
    ),
    ({"logit_bias": [bias(100)]}, "logit_bias[0].token_id", ["0 to 99", "got 100"]),
    (
        {"logit_bias": [bias(3), bias(4), bias(3)]},
        "logit_bias[2].token_id",
        ["at most once", "got 3 again"],
    ),
    ({"logit_bias": [bias(3, math.nan)]}, "logit_bias[0].bias", ["-10000 to 10000", "got nan"]),
    ({"logit_bias": [bias(3, -math.inf)]}, "logit_bias[0].bias", ["to 10000", "got -inf"]),
    ({"bad_words": [""]}, "bad_words[0]", ["from 1 to 8 tokens", "got 0"]),
    ({"bad_words": ["ab", "  "]}, "bad_words[1]", ["from 1 to 8 tokens", "got 0"]),
    ({"bad_words": ["abcdefghi"]}, "bad_words[0]", ["from 1 to 8 tokens", "got 9"]),
    ({"bad_words": ["a~"]}, "bad_words[0]", ["tokenize to ids from 0 to 99", "got 100"]),
    (
        {"bad_words_token_ids": [run_of(1), run_of()]},
        "bad_words_token_ids[1].ids",
        ["from 1 to 8 ids", "got 0"],
    ),
    (
        {"bad_words_token_ids": [run_of(*range(9))]},
        "bad_words_token_ids[0].ids",
        ["from 1 to 8 ids", "got 9"],
    ),
    (
        {"bad_words_token_ids": [run_of(1, 100)]},
        "bad_words_token_ids[0].ids[1]",
        ["0 to 99", "got 100"],
    ),
    ({"bad_words": ["a"] * 257}, "bad_words", ["at most 256 entries in all", "got 257"]),
    (
        {"bad_words": ["a"] * 200, "bad_words_token_ids": [run_of(1)] * 57},
        "bad_words",
        ["at most 256 entries in all", "got 257"],
    ),
    *(
        ({name: value, "do_sample": False}, name, ["do_sample = false", f"got {value}"])
        for name, value in [
            ("temperature", 0.5),
            ("top_k", 5),
            ("top_p", 0.5),
            ("min_p", 0.5),
            ("typical_p", 0.5),
        ]
    ),
]


@pytest.mark.parametrize(
    ("request_", "field", "told"),
    [row[1:] for row in PROMPT_VIOLATIONS],
    ids=[row[0] for row in PROMPT_VIOLATIONS],
)
def test_a_bad_prompt_is_told(
    request_: generation_pb2.GenerateRequest, field: str, told: list[str]
) -> None:
    (violation,) = violations(request_)
    assert violation.field == field
    assert [part for part in told if part not in violation.description] == []


@pytest.mark.parametrize(
    ("options", "field", "told"), OPTION_VIOLATIONS, ids=[str(row[1]) for row in OPTION_VIOLATIONS]
)
def test_a_bad_option_is_told(options: dict[str, Any], field: str, told: list[str]) -> None:
    (violation,) = violations(with_text("x" * 10, **options))
    assert violation.field == f"options.{field}"
    assert [part for part in told if part not in violation.description] == []


def test_text_that_gives_no_token_is_told() -> None:
    class Nothing(Letters):
        async def encode(self, text: str) -> list[int]:
            return []

    with pytest.raises(InvalidRequestError, match="text: must not be empty, got 0 tokens"):
        asyncio.run(prepare(with_text("x"), MODEL, cast("Tokenizer", Nothing())))


def test_text_of_tokens_that_the_model_does_not_have_is_told() -> None:
    class Larger(Letters):
        async def encode(self, text: str) -> list[int]:
            return [1, 100, 101]

    with pytest.raises(InvalidRequestError, match=r"vocab_size of tiny - 1\), got 100"):
        asyncio.run(prepare(with_text("x"), MODEL, cast("Tokenizer", Larger())))


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (with_text("x"), "text"),
        (with_ids(1, stop=["x"]), "options.stop"),
        (with_ids(1, bad_words=["x"]), "options.bad_words"),
    ],
    ids=["prompt", "stop", "bad words"],
)
def test_text_for_a_model_without_a_tokenizer_is_told(
    request_: generation_pb2.GenerateRequest, field: str
) -> None:
    (violation,) = violations(request_, MUTE_MODEL)
    assert violation.field == field
    assert "mute has no tokenizer" in violation.description


@pytest.mark.parametrize("request_", [with_text("x"), with_text(" "), with_ids(0, 99)], ids=str)
def test_a_good_prompt_passes(request_: generation_pb2.GenerateRequest) -> None:
    assert prepared(request_).prompt


def test_token_ids_need_no_tokenizer() -> None:
    assert prepared(with_ids(0, 99), MUTE_MODEL).prompt == [0, 99]


def test_violations_of_prompt_and_options_are_reported_together() -> None:
    request = with_text(
        "",
        max_new_tokens=99,
        temperature=-1.0,
        seed=-1,
        eos_token_ids=[-1, *range(8)],
        num_beams=4,
        stop=["x"],
    )
    assert {violation.field for violation in violations(request)} == {
        "text",
        "options.max_new_tokens",
        "options.temperature",
        "options.seed",
        "options.eos_token_ids",
        "options.eos_token_ids[0]",
        "options.stop",
    }


def test_what_is_wrong_by_itself_contradicts_nothing() -> None:
    request = with_text("x", temperature=-1.0, do_sample=False, num_beams=99, length_penalty=99.0)
    assert [violation.field for violation in violations(request)] == [
        "options.temperature",
        "options.num_beams",
        "options.length_penalty",
    ]


def test_biases_of_the_checkpoint_take_up_room_that_is_told() -> None:
    model = model_pb2.Model()
    model.CopyFrom(MODEL)
    model.default_options.bad_words_token_ids.add(ids=[1, 2])
    model.vocab_size = 1000
    request = with_text("x", logit_bias=[bias(token) for token in range(256)])
    (violation,) = violations(request, model)
    assert "at most 255 entries in all besides 1 of the checkpoint, got 256" in str(violation)


WRONG_IN_EVERY_WAY = with_text(
    "",
    max_new_tokens=-(2**31),
    temperature=-math.inf,
    seed=-(2**63),
    eos_token_ids=[-1] * 10_000,
    top_k=-1,
    top_p=math.nan,
    min_p=math.nan,
    typical_p=math.nan,
    repetition_penalty=math.nan,
    no_repeat_ngram_size=-1,
    min_new_tokens=-1,
    num_beams=-1,
    num_return_sequences=-1,
    length_penalty=math.nan,
    early_stopping=99,
    logit_bias=[bias(-1, math.nan)] * 1000,
    bad_words=["a" * 100] * 1000,
    bad_words_token_ids=[run_of()] * 1000,
    stop=[""] * 1000,
    logprobs=-1,
)


def test_a_request_that_is_wrong_in_every_way_gets_an_answer_that_arrives() -> None:
    with pytest.raises(InvalidRequestError) as error:
        prepared(WRONG_IN_EVERY_WAY)
    status = to_status(error.value)
    # In the trailer as text, and with its details in base64; gRPC allows 16 KB, and 8 KB safely.
    assert len(status.message) + 4 * status.ByteSize() / 3 < 8192
    (bad_request,) = (
        detail for detail in status.details if detail.Is(error_details_pb2.BadRequest.DESCRIPTOR)
    )
    assert bad_request


def test_both_kinds_of_request_are_checked_alike() -> None:
    request = generation_pb2.GenerateStreamRequest(
        text="x", options=generation_pb2.GenerationOptions(seed=-1)
    )
    with pytest.raises(InvalidRequestError, match=r"options\.seed"):
        prepared(request)


@pytest.mark.parametrize(("prompt_tokens", "max_new_tokens"), [(1, 31), (31, 1), (16, 16)])
def test_prompt_and_new_tokens_may_fill_the_model_exactly(
    prompt_tokens: int, max_new_tokens: int
) -> None:
    request = with_text("x" * prompt_tokens, max_new_tokens=max_new_tokens)
    assert prepared(request).options.max_new_tokens == max_new_tokens


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 4, "num_return_sequences": 4, "length_penalty": -10.0},
        {"num_beams": 3, "early_stopping": HEURISTIC, "logprobs": 0},
        {"num_beams": 2, "do_sample": True, "top_k": 5},
        {"num_return_sequences": 16, "temperature": 1.0},
        {"min_new_tokens": 5, "max_new_tokens": 5},
        {"stop": ["é" * 256] * 16, "logprobs": 20},
        {"logit_bias": [bias(token, -1e4) for token in range(100)], "bad_words": ["a"] * 156},
        {"bad_words": ["abcdefgh"], "bad_words_token_ids": [run_of(*range(8))]},
        {"top_k": 100, "top_p": 1.0, "min_p": 1.0, "typical_p": 1.0},
    ],
    ids="+".join,
)
def test_options_at_their_limits_pass(options: dict[str, Any]) -> None:
    assert prepared(with_text("x", **options))


INTEGERS = st.none() | st.integers(-2, 40)
FLOATS = st.none() | st.floats()


@given(
    prompt_tokens=st.integers(1, 40),
    max_new_tokens=INTEGERS,
    min_new_tokens=INTEGERS,
    do_sample=st.none() | st.booleans(),
    temperature=FLOATS,
    top_k=INTEGERS,
    top_p=FLOATS | st.floats(0, 1),
    min_p=FLOATS | st.floats(0, 1),
    num_beams=st.none() | st.integers(-1, 6),
    num_return_sequences=st.none() | st.integers(-1, 20),
    length_penalty=FLOATS,
    logprobs=st.none() | st.integers(-1, 22),
    seed=st.none() | st.integers(-(2**63), 2**63 - 1),
    eos_token_ids=st.lists(st.integers(-2, 101), max_size=10),
)
def test_whatever_is_let_through_is_within_every_limit(prompt_tokens: int, **options: Any) -> None:
    request = with_text("x" * prompt_tokens, **{k: v for k, v in options.items() if v is not None})
    try:
        resolved = prepared(request).options
    except InvalidRequestError:
        return
    assert 1 <= resolved.max_new_tokens <= 32 - prompt_tokens
    assert 0 <= resolved.min_new_tokens <= resolved.max_new_tokens
    assert 0 < resolved.temperature < math.inf
    assert 0 <= resolved.top_k <= 100
    assert 0 < resolved.top_p <= 1
    assert 0 <= resolved.min_p <= 1
    assert 1 <= resolved.num_beams <= 4
    assert (
        1
        <= resolved.num_return_sequences
        <= max(resolved.num_beams, 16 if resolved.do_sample and resolved.num_beams == 1 else 1)
    )
    assert -10 <= resolved.length_penalty <= 10
    assert 0 <= resolved.logprobs <= limits.MAX_TOP_LOGPROBS
    assert resolved.seed >= 0
    assert len(resolved.eos_token_ids) <= limits.MAX_EOS_TOKENS
    assert all(0 <= token < 100 for token in resolved.eos_token_ids)

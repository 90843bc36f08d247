"""Checks of requests as a whole: prompt and options together."""

from __future__ import annotations

import math
from typing import Any

import pytest
from google.rpc import error_details_pb2
from hypothesis import given
from hypothesis import strategies as st

from harness.requests import bias, prepared, run_of, violations, with_text
from shaperouter.v1 import generation_pb2
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.generation import limits
from shaperouter_service.rpc.status import to_status


def test_violations_of_prompt_and_options_are_reported_together() -> None:
    request = with_text(
        "",
        max_new_tokens=99,
        temperature=-1.0,
        seed=-1,
        eos_token_ids=[-1, *range(8)],
        num_beams=4,
        stop=["\N{REPLACEMENT CHARACTER}"],
    )
    assert {violation.field for violation in violations(request)} == {
        "text",
        "options.max_new_tokens",
        "options.temperature",
        "options.seed",
        "options.eos_token_ids",
        "options.eos_token_ids[0]",
        "options.stop[0]",
    }


def test_what_is_wrong_by_itself_contradicts_nothing() -> None:
    request = with_text("x", temperature=-1.0, do_sample=False, num_beams=99, length_penalty=99.0)
    assert [violation.field for violation in violations(request)] == [
        "options.temperature",
        "options.num_beams",
        "options.length_penalty",
    ]


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
    # The trailer has the error as text, and its details in base64. gRPC allows 16 KB, and 8 KB for
    # certain.
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
    assert prepared(request).options["max_new_tokens"] == max_new_tokens


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
    assert 1 <= resolved["max_new_tokens"] <= 32 - prompt_tokens
    assert 0 <= resolved["min_new_tokens"] <= resolved["max_new_tokens"]
    assert 0 < resolved["temperature"] < math.inf
    assert 0 <= resolved["top_k"] <= 100
    assert 0 < resolved["top_p"] <= 1
    assert 0 <= resolved["min_p"] <= 1
    assert 1 <= resolved["num_beams"] <= 4
    samples = resolved["do_sample"] and resolved["num_beams"] == 1
    assert 1 <= resolved["num_return_sequences"] <= max(resolved["num_beams"], 16 if samples else 1)
    assert -10 <= resolved["length_penalty"] <= 10
    assert 0 <= (resolved["logprobs"] or 0) <= limits.MAX_TOP_LOGPROBS
    assert resolved["seed"] >= 0
    assert len(resolved["eos_token_ids"]) <= limits.MAX_EOS_TOKENS
    assert all(0 <= token < 100 for token in resolved["eos_token_ids"])

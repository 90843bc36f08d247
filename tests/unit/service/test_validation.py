"""Checks of requests, and the defaults they get."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shaperouter.v1 import generation_pb2, model_pb2
from shaperouter_service.api.validation import (
    DEFAULT_MAX_NEW_TOKENS,
    MAX_EOS_TOKENS,
    GenerateAny,
    check_prompt,
    resolve_options,
)
from shaperouter_service.errors import InvalidRequestError

MODEL = model_pb2.Model(
    name="tiny",
    tokenizer="GPT2Tokenizer",
    vocab_size=100,
    max_length=32,
    eos_token_ids=[7, 9],
    default_temperature=0.75,
)
LONG_MODEL = model_pb2.Model(name="long", vocab_size=100, max_length=1024)
PROMPT = [1, 2, 3, 4]


def with_text(text: str, **options: Any) -> generation_pb2.GenerateRequest:
    return generation_pb2.GenerateRequest(
        text=text, options=generation_pb2.GenerationOptions(**options)
    )


def with_ids(*ids: int, **options: Any) -> generation_pb2.GenerateRequest:
    return generation_pb2.GenerateRequest(
        token_ids=generation_pb2.TokenIds(ids=ids),
        options=generation_pb2.GenerationOptions(**options),
    )


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
]

# The same, and the number of tokens of the prompt.
OPTION_VIOLATIONS: list[tuple[str, GenerateAny, int, str, list[str]]] = [
    ("text of no tokens", with_text("x"), 0, "text", ["must not be empty", "got 0"]),
    ("long text", with_text("x"), 32, "text", ["at most 31", "tiny", "got 32"]),
    ("long ids", with_ids(1), 500, "token_ids.ids", ["at most 31", "tiny", "got 500"]),
    (
        "over the room",
        with_text("x", max_new_tokens=23),
        10,
        "options.max_new_tokens",
        ["at most 22", "prompt of 10", "32", "got 23"],
    ),
    (
        "largest max_new_tokens",
        with_text("x", max_new_tokens=2**31 - 1),
        10,
        "options.max_new_tokens",
        ["at most 22", "got 2147483647"],
    ),
    (
        "max_new_tokens 0",
        with_text("x", max_new_tokens=0),
        4,
        "options.max_new_tokens",
        ["at least 1", "got 0"],
    ),
    (
        "max_new_tokens -1",
        with_text("x", max_new_tokens=-1),
        4,
        "options.max_new_tokens",
        ["at least 1", "got -1"],
    ),
    (
        "temperature 0",
        with_text("x", temperature=0.0),
        4,
        "options.temperature",
        ["from 1e-06 to 1e+06", "do_sample", "got 0"],
    ),
    (
        "temperature below 0",
        with_text("x", temperature=-0.5),
        4,
        "options.temperature",
        ["from 1e-06 to 1e+06", "got -0.5"],
    ),
    (
        "temperature NaN",
        with_text("x", temperature=math.nan),
        4,
        "options.temperature",
        ["from 1e-06 to 1e+06", "got nan"],
    ),
    (
        "temperature infinite",
        with_text("x", temperature=math.inf),
        4,
        "options.temperature",
        ["from 1e-06 to 1e+06", "got inf"],
    ),
    (
        "temperature of greedy decoding",
        with_text("x", temperature=0.5, do_sample=False),
        4,
        "options.temperature",
        ["do_sample = false", "got 0.5"],
    ),
    (
        "negative seed",
        with_text("x", seed=-1),
        4,
        "options.seed",
        ["0 to 9223372036854775807", "got -1"],
    ),
    (
        "nine end tokens",
        with_text("x", eos_token_ids=range(9)),
        4,
        "options.eos_token_ids",
        ["at most 8", "got 9"],
    ),
    (
        "end token at the end",
        with_text("x", eos_token_ids=[5, 100]),
        4,
        "options.eos_token_ids[1]",
        ["0 to 99", "got 100"],
    ),
    (
        "negative end token",
        with_text("x", eos_token_ids=[-2]),
        4,
        "options.eos_token_ids[0]",
        ["0 to 99", "got -2"],
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
    with pytest.raises(InvalidRequestError) as error:
        check_prompt(request_, MODEL)
    (violation,) = error.value.violations
    assert violation.field == field
    assert [part for part in told if part not in violation.description] == []


@pytest.mark.parametrize(
    ("request_", "prompt_tokens", "field", "told"),
    [row[1:] for row in OPTION_VIOLATIONS],
    ids=[row[0] for row in OPTION_VIOLATIONS],
)
def test_a_bad_option_is_told(
    request_: GenerateAny, prompt_tokens: int, field: str, told: list[str]
) -> None:
    with pytest.raises(InvalidRequestError) as error:
        resolve_options(request_, MODEL, [1] * prompt_tokens)
    (violation,) = error.value.violations
    assert violation.field == field
    assert [part for part in told if part not in violation.description] == []


@pytest.mark.parametrize("temperature", [1e-50, 1e39])
def test_a_temperature_that_single_precision_cannot_hold_is_told(temperature: float) -> None:
    # On the device it would be zero or infinite.
    with pytest.raises(InvalidRequestError, match=r"options\.temperature"):
        resolve_options(with_text("x", temperature=temperature), MODEL, PROMPT)


def test_text_for_a_model_without_a_tokenizer_is_told() -> None:
    with pytest.raises(InvalidRequestError, match="long has no tokenizer; send token_ids"):
        check_prompt(with_text("x"), LONG_MODEL)


@pytest.mark.parametrize("request_", [with_text("x"), with_text(" "), with_ids(0, 99)])
def test_a_good_prompt_passes(request_: generation_pb2.GenerateRequest) -> None:
    check_prompt(request_, MODEL)


def test_token_ids_need_no_tokenizer() -> None:
    check_prompt(with_ids(0, 99), LONG_MODEL)


def test_several_violations_are_reported_together() -> None:
    request = with_text(
        "x", max_new_tokens=99, temperature=-1.0, seed=-1, eos_token_ids=[-1, *range(8)]
    )
    with pytest.raises(InvalidRequestError) as error:
        resolve_options(request, MODEL, PROMPT)
    assert {violation.field for violation in error.value.violations} == {
        "options.max_new_tokens",
        "options.temperature",
        "options.seed",
        "options.eos_token_ids",
        "options.eos_token_ids[0]",
    }


def test_a_message_full_of_bad_ids_gets_a_short_answer() -> None:
    request = with_text("x", eos_token_ids=[-1] * 10_000)
    with pytest.raises(InvalidRequestError) as error:
        resolve_options(request, MODEL, PROMPT)
    # Statuses travel in headers, which gRPC limits to some kilobytes.
    assert len(str(error.value)) < 2000


def test_both_kinds_of_request_are_checked_alike() -> None:
    request = generation_pb2.GenerateStreamRequest(
        text="x", options=generation_pb2.GenerationOptions(seed=-1)
    )
    with pytest.raises(InvalidRequestError, match=r"options\.seed"):
        resolve_options(request, MODEL, PROMPT)


@pytest.mark.parametrize(("prompt_tokens", "max_new_tokens"), [(1, 31), (31, 1), (16, 16)])
def test_prompt_and_new_tokens_may_fill_the_model_exactly(
    prompt_tokens: int, max_new_tokens: int
) -> None:
    request = with_text("x", max_new_tokens=max_new_tokens)
    options = resolve_options(request, MODEL, [1] * prompt_tokens)
    assert options.max_new_tokens == max_new_tokens


def test_the_default_of_max_new_tokens() -> None:
    options = resolve_options(with_text("x"), LONG_MODEL, PROMPT)
    assert options.max_new_tokens == DEFAULT_MAX_NEW_TOKENS == 64


def test_the_default_of_max_new_tokens_is_limited_by_the_room() -> None:
    options = resolve_options(with_text("x"), MODEL, PROMPT)
    assert options.max_new_tokens == 28


def test_a_seed_is_chosen_when_there_is_none() -> None:
    seeds = {resolve_options(with_text("x"), MODEL, PROMPT).seed for _ in range(50)}
    assert len(seeds) == 50
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_a_seed_is_used_as_it_is(seed: int) -> None:
    assert resolve_options(with_text("x", seed=seed), MODEL, PROMPT).seed == seed


def test_decoding_is_greedy_by_default() -> None:
    assert not resolve_options(with_text("x"), MODEL, PROMPT).do_sample


def test_a_temperature_implies_sampling() -> None:
    options = resolve_options(with_text("x", temperature=0.5), MODEL, PROMPT)
    assert (options.do_sample, options.temperature) == (True, 0.5)


def test_sampling_has_the_models_temperature() -> None:
    options = resolve_options(with_text("x", do_sample=True), MODEL, PROMPT)
    assert (options.do_sample, options.temperature) == (True, 0.75)


def test_a_model_may_sample_by_default() -> None:
    model = model_pb2.Model()
    model.CopyFrom(MODEL)
    model.default_do_sample = True
    assert resolve_options(with_text("x"), model, PROMPT).do_sample
    assert not resolve_options(with_text("x", do_sample=False), model, PROMPT).do_sample


def test_end_tokens_are_the_models_by_default() -> None:
    assert resolve_options(with_text("x"), MODEL, PROMPT).eos_token_ids == [7, 9]


def test_end_tokens_of_the_request_replace_the_models() -> None:
    request = with_text("x", eos_token_ids=range(MAX_EOS_TOKENS))
    assert resolve_options(request, MODEL, PROMPT).eos_token_ids == list(range(8))


@given(
    prompt_tokens=st.integers(0, 40),
    max_new_tokens=st.none() | st.integers(-2, 40),
    temperature=st.none() | st.floats(),
    seed=st.none() | st.integers(-(2**63), 2**63 - 1),
    eos_token_ids=st.lists(st.integers(-2, 101), max_size=10),
)
def test_whatever_is_let_through_is_within_every_limit(prompt_tokens: int, **options: Any) -> None:
    request = with_text("x", **{k: v for k, v in options.items() if v is not None})
    try:
        resolved = resolve_options(request, MODEL, [1] * prompt_tokens)
    except InvalidRequestError:
        return
    assert prompt_tokens >= 1
    assert 1 <= resolved.max_new_tokens <= 32 - prompt_tokens
    assert 0 < resolved.temperature < math.inf
    assert resolved.seed >= 0
    assert len(resolved.eos_token_ids) <= MAX_EOS_TOKENS
    assert all(0 <= token < 100 for token in resolved.eos_token_ids)

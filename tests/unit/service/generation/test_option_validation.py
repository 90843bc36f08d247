"""Checks of options: what is refused, and what is said about it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from harness.default_options import default_options
from harness.requests import MODEL, bias, prepared, run_of, violations, with_text
from shaperouter.v1 import generation_pb2
from shaperouter_service.wire.options import options_from_message

HEURISTIC = generation_pb2.EARLY_STOPPING_HEURISTIC

# Options, field that is blamed, what the description must hold; after a prompt of ten tokens.
OPTION_VIOLATIONS: list[tuple[dict[str, Any], str, list[str]]] = [
    ({"max_new_tokens": 23}, "max_new_tokens", ["at most 22", "prompt of 10", "32", "got 23"]),
    ({"max_new_tokens": 2**31 - 1}, "max_new_tokens", ["at most 22", "got 2147483647"]),
    ({"max_new_tokens": 0}, "max_new_tokens", ["at least 1 unless prompt_logprobs", "got 0"]),
    ({"max_new_tokens": -1}, "max_new_tokens", ["at least 0", "got -1"]),
    ({"prompt_logprobs": 21}, "prompt_logprobs", ["from 0 to 20", "got 21"]),
    ({"prompt_logprobs": -1}, "prompt_logprobs", ["from 0 to 20", "got -1"]),
    (
        {"prompt_logprobs": 1, "max_new_tokens": 0, "num_beams": 2},
        "num_beams",
        ["must be 1 if max_new_tokens is 0", "got 2"],
    ),
    (
        {"prompt_logprobs": 1, "max_new_tokens": 0, "num_return_sequences": 2, "top_k": 1},
        "num_return_sequences",
        ["must be 1 if max_new_tokens is 0", "got 2"],
    ),
    (
        {"prompt_logprobs": 1, "max_new_tokens": 0, "min_new_tokens": 1},
        "min_new_tokens",
        ["at most 0 (max_new_tokens)", "got 1"],
    ),
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
    ({"renormalize_logits": True}, "renormalize_logits", ["num_beams above 1", "got True"]),
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
    ({"logprobs": 1, "num_beams": 2}, "logprobs", ["0 if num_beams is above 1", "got 1"]),
    ({"stop": ["x"] * 17}, "stop", ["at most 16 strings", "got 17"]),
    ({"stop": ["x", ""]}, "stop[1]", ["from 1 to 256 characters", "got 0"]),
    ({"stop": ["é" * 257]}, "stop[0]", ["from 1 to 256 characters", "got 257"]),
    (
        {"stop": ["x", "a\N{REPLACEMENT CHARACTER}"], "num_beams": 2},
        "stop[1]",
        ["must not contain U+FFFD if num_beams is above 1 (it is 2)"],
    ),
    ({"logit_bias": [bias(100)]}, "logit_bias[0].token_id", ["0 to 99", "got 100"]),
    (
        {"logit_bias": [bias(3), bias(4), bias(3)]},
        "logit_bias[2].token_id",
        ["only once", "got 3 again"],
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
    ({"bad_words": ["a"] * 257}, "bad_words", ["at most 256 entries in total", "got 257"]),
    (
        {"bad_words": ["a"] * 200, "bad_words_token_ids": [run_of(1)] * 57},
        "bad_words",
        ["at most 256 entries in total", "got 257"],
    ),
    ({"suppress_tokens": [1, 100]}, "suppress_tokens[1]", ["0 to 99", "got 100"]),
    (
        {"bad_words": ["a"] * 200, "suppress_tokens": [1] * 57},
        "bad_words",
        ["at most 256 entries in total", "got 257"],
    ),
    (
        {"forced_bos_token_id": 3, "suppress_tokens": [2, 3]},
        "forced_bos_token_id",
        ["must not be one of suppress_tokens", "got 3"],
    ),
]


@pytest.mark.parametrize(
    ("options", "field", "told"), OPTION_VIOLATIONS, ids=[str(row[1]) for row in OPTION_VIOLATIONS]
)
def test_a_bad_option_is_told(options: dict[str, Any], field: str, told: list[str]) -> None:
    (violation,) = violations(with_text("x" * 10, **options))
    assert violation.field == f"options.{field}"
    assert [part for part in told if part not in violation.description] == []


def test_a_token_that_the_checkpoint_forces_must_not_be_suppressed() -> None:
    defaults = options_from_message(default_options(forced_eos_token_id=5))
    model = dataclasses.replace(MODEL, default_options=defaults)
    (violation,) = violations(with_text("x", suppress_tokens=[5]), model)
    assert violation.field == "options.suppress_tokens"
    assert "must not contain forced_eos_token_id, got 5" in violation.description


def test_biases_of_the_checkpoint_take_up_room_that_is_told() -> None:
    defaults = options_from_message(default_options(bad_words_token_ids=[run_of(1, 2)]))
    model = dataclasses.replace(MODEL, default_options=defaults, vocab_size=1000)
    request = with_text("x", logit_bias=[bias(token) for token in range(256)])
    (violation,) = violations(request, model)
    assert "at most 255 entries in total besides the checkpoint's 1, got 256" in str(violation)


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 4, "num_return_sequences": 4, "length_penalty": -10.0},
        {"num_beams": 3, "early_stopping": HEURISTIC, "logprobs": 0},
        {"num_beams": 2, "do_sample": True, "top_k": 5},
        {"num_return_sequences": 16, "temperature": 1.0},
        {"min_new_tokens": 5, "max_new_tokens": 5},
        {"stop": ["é" * 256] * 16, "logprobs": 20},
        {"prompt_logprobs": 20, "num_beams": 3},
        {"prompt_logprobs": 0, "max_new_tokens": 0},
        {"logit_bias": [bias(token, -1e4) for token in range(100)], "bad_words": ["a"] * 156},
        {"bad_words": ["abcdefgh"], "bad_words_token_ids": [run_of(*range(8))]},
        {"top_k": 100, "top_p": 1.0, "min_p": 1.0, "typical_p": 1.0},
        {"epsilon_cutoff": 1 - 1e-9, "eta_cutoff": 0.0},
        {"forced_bos_token_id": 99, "forced_eos_token_id": -1, "suppress_tokens": range(99)},
    ],
    ids="+".join,
)
def test_options_at_their_limits_pass(options: dict[str, Any]) -> None:
    assert prepared(with_text("x", **options))

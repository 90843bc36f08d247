"""The rules of transcripts ban the same tokens as the reference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from shaperouter_service.decoding.options import TranscriptRules
from shaperouter_service.decoding.timestamps import constrain_transcript
from shaperouter_service.generation.option import NO_TOKEN

GOLDEN = json.loads((Path(__file__).parents[1] / "goldens/transcript-rules.json").read_text())
CASES = GOLDEN["cases"]
# All cases in one call; more places than any sequence has.
PLACES = 16

RULED = (GOLDEN["first_timestamp"], GOLDEN["last_initial_timestamp"], GOLDEN["begin_suppressed"])
FREE = (NO_TOKEN, NO_TOKEN, [])


def rules(rows: Sequence[tuple[int, int, list[int]]]) -> TranscriptRules:
    suppressed = np.full([len(rows), 4], NO_TOKEN, np.int32)
    for index, (_, _, tokens) in enumerate(rows):
        suppressed[index, : len(tokens)] = tokens
    return TranscriptRules(
        first_timestamp=tf.constant([first for first, _, _ in rows]),
        last_initial_timestamp=tf.constant([last for _, last, _ in rows]),
        begin_suppressed=tf.constant(suppressed),
        first_token=tf.fill([len(rows), 2], NO_TOKEN),
        no_speech_token=tf.fill([len(rows)], NO_TOKEN),
        no_speech_position=tf.zeros([len(rows)], tf.int32),
    )


@tf.function(jit_compile=True, autograph=False)
def constrain(**arguments: Any) -> tf.Tensor:
    return constrain_transcript(**arguments)


def run(ruled: TranscriptRules, active: bool = True) -> np.ndarray:
    tokens = np.zeros([len(CASES), PLACES], np.int32)
    for row, case in zip(tokens, CASES, strict=True):
        sequence = case["prompt_token_ids"] + case["token_ids"]
        row[: len(sequence)] = sequence
        # Tokens after the end of a sequence do not belong to it.
        row[len(sequence) :] = GOLDEN["first_timestamp"]
    prompts = np.array([len(case["prompt_token_ids"]) for case in CASES], np.int32)
    news = np.array([len(case["token_ids"]) for case in CASES], np.int32)
    result: np.ndarray = constrain(
        scores=tf.constant([case["logits"] for case in CASES]),
        tokens=tf.constant(tokens),
        lengths=tf.constant(prompts + news),
        prompt_lengths=tf.constant(prompts),
        rules=ruled,
        end_tokens=tf.fill([len(CASES)], GOLDEN["end"]),
        active=tf.fill([len(CASES)], active),
    ).numpy()
    return result


@pytest.fixture(scope="module")
def constrained() -> np.ndarray:
    return run(rules([RULED] * len(CASES)))


@pytest.mark.parametrize("index", range(len(CASES)))
def test_the_reference_bans_the_same(constrained: np.ndarray, index: int) -> None:
    found = np.flatnonzero(np.isneginf(constrained[index])).tolist()
    case = CASES[index]
    assert (case["token_ids"], found) == (case["token_ids"], case["banned"])


def test_scores_of_allowed_tokens_do_not_change(constrained: np.ndarray) -> None:
    logits = np.array([case["logits"] for case in CASES], np.float32)
    kept = ~np.isneginf(constrained)
    np.testing.assert_array_equal(constrained[kept], logits[kept])


def test_scores_of_rows_without_rules_do_not_change() -> None:
    every_other = [RULED if index % 2 else FREE for index in range(len(CASES))]
    logits = np.array([case["logits"] for case in CASES], np.float32)
    np.testing.assert_array_equal(run(rules(every_other))[::2], logits[::2])


def test_inactive_rows_are_not_computed() -> None:
    logits = np.array([case["logits"] for case in CASES], np.float32)
    np.testing.assert_array_equal(run(rules([RULED] * len(CASES)), active=False), logits)


def test_first_tokens_can_be_suppressed_without_timestamps() -> None:
    found = run(rules([(NO_TOKEN, NO_TOKEN, GOLDEN["begin_suppressed"])] * len(CASES)))
    expected = [[] if case["token_ids"] else GOLDEN["begin_suppressed"] for case in CASES]
    assert [np.flatnonzero(np.isneginf(row)).tolist() for row in found] == expected

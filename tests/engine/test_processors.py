"""Processors equal those of Transformers, for rows that differ in their options."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.engine import Options
from shaperouter_service.decoding.ngrams import count_matches
from shaperouter_service.decoding.processors import process
from shaperouter_service.decoding.state import SourceTokens
from shaperouter_service.generation.option import NO_TOKEN

ROWS, VOCAB_SIZE, PLACES = 3, 12, 10
NEVER = -np.inf


@dataclass(frozen=True)
class Row:
    """A row of a call; `garbage` are the tokens after the sequence and after the source."""

    scores: Sequence[float] = tuple(range(-5, VOCAB_SIZE - 5))
    tokens: Sequence[int] = (0,)
    prompt_length: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    garbage: Sequence[int] = (0,) * PLACES
    source: Sequence[int] = (0,)


@functools.cache
def _compiled() -> Any:
    return tf.function(functools.partial(process, is_native=False), jit_compile=True)


def _process(rows: Sequence[Row], active: Sequence[bool]) -> np.ndarray:
    padded = [[*row.tokens, *row.garbage][:PLACES] for row in rows]
    sources = [[*row.source, *row.garbage][:PLACES] for row in rows]
    records = [Options.of(**{"max_new_tokens": PLACES} | row.options) for row in rows]
    return (
        _compiled()(
            tf.constant([row.scores for row in rows], tf.float32),
            tf.constant(padded, tf.int32),
            tf.constant([len(row.tokens) for row in rows]),
            tf.constant([row.prompt_length for row in rows]),
            tf.constant([[*count_matches(row.tokens), *row.garbage][:PLACES] for row in rows]),
            source=SourceTokens(
                tokens=tf.constant(sources, tf.int32),
                matches=tf.constant([_source_matches(row) for row in rows], tf.int32),
            ),
            source_lengths=tf.constant([len(row.source) for row in rows]),
            options=tf.nest.map_structure(lambda *fields: tf.concat(fields, 0), *records),
            active=tf.constant(active),
        )
    ).numpy()


def _source_matches(row: Row) -> Sequence[int]:
    """How many tokens before each of the source equal the newest of the sequence."""
    newest = list(reversed(row.tokens))
    counts = []
    for place in range(len(row.source)):
        before = list(reversed(row.source[:place]))
        pairs = zip(before, newest, strict=False)
        counts.append(next((n for n, (a, b) in enumerate(pairs) if a != b), None))
        if counts[-1] is None:
            counts[-1] = min(len(before), len(newest))
    return [*counts, *row.garbage][:PLACES]


def _alone(row: Row) -> np.ndarray:
    """The row's result beside rows without options."""
    return _process([row, Row(), Row()], [True, False, False])[0]


def _reference(row: Row) -> np.ndarray:
    """The computation of Transformers, without tensors."""
    scores, tokens = np.array(row.scores, np.float32), list(row.tokens)
    for run, bias in row.options.get("biases", ()):
        before = list(run[:-1])
        if not before or tokens[-len(before) :] == before:
            scores[run[-1]] += np.float32(bias)
    penalty = 1 / np.float32(row.options.get("encoder_repetition_penalty", 1))
    for token in set(row.source):
        scores[token] *= penalty if scores[token] < 0 else 1 / penalty
    penalty = np.float32(row.options.get("repetition_penalty", 1))
    for token in set(tokens):
        scores[token] *= penalty if scores[token] < 0 else 1 / penalty
    of_tokens, of_source = "no_repeat_ngram_size", "encoder_no_repeat_ngram_size"
    for name, those in ((of_tokens, tokens), (of_source, row.source)):
        size = row.options.get(name, 0)
        if 0 < size <= len(tokens) + 1:
            newest = tokens[len(tokens) - size + 1 :]
            for start in range(len(those) - size + 1):
                if list(those[start : start + size - 1]) == newest:
                    scores[those[start + size - 1]] = NEVER
    generated = len(tokens) - row.prompt_length
    if generated < row.options.get("min_new_tokens", 0):
        scores[list(row.options.get("eos_token_ids", ()))] = NEVER
    for name, applies in (
        ("forced_bos_token_id", len(tokens) == 1),
        ("forced_eos_token_id", generated == row.options.get("max_new_tokens", PLACES) - 1),
    ):
        forced = row.options.get(name, NO_TOKEN)
        if applies and forced != NO_TOKEN:
            scores[:] = NEVER
            scores[forced] = 0
    return scores


# Few tokens, so that runs repeat; biases whose sums are exact.
TOKENS = st.integers(0, 3)
SIZES = st.integers(0, 5) | st.sampled_from([PLACES + 1, 2**31 - 1])
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "biases": st.lists(
            st.tuples(
                st.lists(TOKENS, min_size=1, max_size=8),
                st.sampled_from([-2.0, -0.25, 0.5, 3.0, NEVER]),
            ),
            max_size=6,
        ),
        # Powers of two, by which dividing is exact.
        "repetition_penalty": st.sampled_from([0.5, 1.0, 2.0, 4.0]),
        "no_repeat_ngram_size": SIZES,
        "min_new_tokens": st.integers(0, PLACES),
        "max_new_tokens": st.integers(1, PLACES),
        "encoder_repetition_penalty": st.sampled_from([0.5, 1.0, 2.0, 4.0]),
        "encoder_no_repeat_ngram_size": st.integers(0, 5)
        | st.sampled_from([PLACES + 1, 2**31 - 1]),
        "forced_bos_token_id": st.integers(NO_TOKEN, VOCAB_SIZE - 1),
        "forced_eos_token_id": st.integers(NO_TOKEN, VOCAB_SIZE - 1),
        "eos_token_ids": st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=8, unique=True),
    },
)


@st.composite
def _rows(draw: st.DrawFn) -> Row:
    tokens = draw(st.lists(TOKENS, min_size=1, max_size=PLACES))
    score = st.one_of(st.integers(-40, 40).map(lambda n: n / 8), st.just(NEVER))
    return Row(
        scores=draw(st.lists(score, min_size=VOCAB_SIZE, max_size=VOCAB_SIZE)),
        tokens=tokens,
        prompt_length=draw(st.integers(1, len(tokens))),
        options=draw(OPTIONS),
        garbage=draw(st.lists(TOKENS, min_size=PLACES, max_size=PLACES)),
        source=draw(st.lists(TOKENS, min_size=1, max_size=PLACES)),
    )


@settings(max_examples=200, deadline=None)
@given(st.lists(_rows(), min_size=ROWS, max_size=ROWS))
def test_each_row_equals_the_reference(rows: list[Row]) -> None:
    found = _process(rows, [True] * ROWS)
    np.testing.assert_array_equal(found, [_reference(row) for row in rows])


@settings(max_examples=30, deadline=None)
@given(st.lists(_rows(), min_size=ROWS, max_size=ROWS))
def test_each_row_is_independent_of_the_others(rows: list[Row]) -> None:
    found = _process(rows, [True] * ROWS)
    np.testing.assert_array_equal(found, [_alone(row) for row in rows])


def test_options_of_inactive_rows_change_no_other_row() -> None:
    rows = [Row(), Row(options={"biases": [([1], 5.0)], "repetition_penalty": 2.0}), Row()]
    found = _process(rows, [True, False, True])
    np.testing.assert_array_equal(found[0], Row().scores)
    np.testing.assert_array_equal(found[2], Row().scores)


def _changes(**row: Any) -> dict[int, float]:
    """The scores that have changed."""
    row["options"] = {key: row.pop(key) for key in tuple(row) if key not in Row.__annotations__}
    before = Row(**row)
    after = _alone(before)
    return {t: float(after[t]) for t in range(VOCAB_SIZE) if after[t] != before.scores[t]}


# Row's scores are -5, -4, … 6.


def test_a_bias_of_one_token_is_always_added() -> None:
    assert _changes(tokens=[7], biases=[([3], 0.5)]) == {3: -1.5}


def test_a_bias_of_several_tokens_is_added_after_its_beginning() -> None:
    biases = [([1, 2, 3], 0.5)]
    assert _changes(tokens=[9, 1, 2], biases=biases) == {3: -1.5}
    assert _changes(tokens=[1, 2, 9], biases=biases) == {}
    assert _changes(tokens=[2, 1], biases=biases) == {}


def test_a_biased_run_can_be_at_most_one_longer_than_the_sequence() -> None:
    assert _changes(tokens=[1, 1], biases=[([1, 1, 3], 0.5)]) == {3: -1.5}
    assert _changes(tokens=[1], biases=[([1, 1, 3], 0.5)]) == {}
    assert _changes(tokens=[1], biases=[([1, 1, 1, 1, 1, 1, 1, 3], NEVER)]) == {}


def test_tokens_after_the_sequence_are_ignored() -> None:
    row = {"tokens": [1, 2], "garbage": [3] * PLACES}
    assert _changes(**row, biases=[([2, 3, 4], 1.0), ([3, 4], 1.0)]) == {}
    assert _changes(**row, no_repeat_ngram_size=1, repetition_penalty=2.0).keys() == {1, 2}


def test_biases_of_one_token_add_up() -> None:
    biases = [([3], 0.5), ([3], 0.25), ([7, 3], 1.0), ([8, 3], 8.0)]
    assert _changes(tokens=[7], biases=biases) == {3: -0.25}


def test_a_banned_word_stays_banned_with_any_other_bias() -> None:
    assert _changes(biases=[([3], 100.0), ([3], NEVER)], repetition_penalty=2.0)[3] == NEVER


def test_the_maximum_number_of_biases_can_be_used() -> None:
    biases = [([index % VOCAB_SIZE], 1.0) for index in range(256)]
    found = _alone(Row(options={"biases": biases}))
    times = [256 // VOCAB_SIZE + (token < 256 % VOCAB_SIZE) for token in range(VOCAB_SIZE)]
    np.testing.assert_array_equal(found, np.add(Row().scores, times))


def test_a_repeated_token_is_penalized_once() -> None:
    assert _changes(tokens=[3, 3, 9, 5], repetition_penalty=2.0) == {3: -4.0, 9: 2.0}


def test_a_penalty_below_one_makes_repetition_likelier() -> None:
    assert _changes(tokens=[3, 9], repetition_penalty=0.5) == {3: -1.0, 9: 8.0}


def test_a_bias_is_penalized_too() -> None:
    assert _changes(tokens=[3], biases=[([3], -2.0)], repetition_penalty=2.0) == {3: -8.0}


@pytest.mark.parametrize(
    ("size", "banned"), [(1, {1, 2, 3, 4}), (2, {3, 4}), (3, {3}), (4, set()), (5, set())]
)
def test_n_grams_do_not_repeat(size: int, banned: set[int]) -> None:
    """The sequence ends on 1 2; before, 2 was followed by 3 and 4, and 1 2 by 3."""
    found = _changes(tokens=[1, 2, 3, 2, 4, 1, 2], no_repeat_ngram_size=size)
    assert found == dict.fromkeys(banned, NEVER)


def test_n_grams_may_overlap() -> None:
    assert _changes(tokens=[1, 1, 1], no_repeat_ngram_size=3) == {1: NEVER}
    assert _changes(tokens=[1, 1], no_repeat_ngram_size=3) == {}


def test_a_penalty_of_the_source_makes_its_tokens_likelier() -> None:
    assert _changes(source=[3, 9], encoder_repetition_penalty=2.0) == {3: -1.0, 9: 8.0}


def test_runs_of_the_source_never_come() -> None:
    row = {"tokens": [9, 1, 2], "source": [1, 2, 3, 2, 4]}
    assert _changes(**row, encoder_no_repeat_ngram_size=2) == {3: NEVER, 4: NEVER}
    assert _changes(**row, encoder_no_repeat_ngram_size=3) == {3: NEVER}
    assert _changes(**row, encoder_no_repeat_ngram_size=4) == {}


def test_what_lies_after_the_source_is_none_of_it() -> None:
    row = {"tokens": [1, 2], "source": [5], "garbage": [3] * PLACES}
    found = _changes(**row, encoder_no_repeat_ngram_size=1, encoder_repetition_penalty=2.0)
    assert found.keys() == {5}


def _only(token: int) -> dict[int, float]:
    """The changes that leave one token, whose score is 0."""
    return {t: 0.0 if t == token else NEVER for t in range(VOCAB_SIZE)}


def test_a_first_token_is_forced_after_a_prompt_of_one() -> None:
    assert _changes(tokens=[7], forced_bos_token_id=3) == _only(3)
    assert _changes(tokens=[7, 7], prompt_length=2, forced_bos_token_id=3) == {}


def test_a_last_token_is_forced_at_the_limit_alone() -> None:
    row = {"max_new_tokens": 3, "forced_eos_token_id": 3}
    assert _changes(tokens=[7, 8, 9], **row) == _only(3)
    assert _changes(tokens=[7, 8], **row) == {}


def test_what_is_forced_comes_whatever_bans_it() -> None:
    bans = {"biases": [([3], NEVER)], "eos_token_ids": [3], "min_new_tokens": 5}
    assert _changes(tokens=[7], forced_bos_token_id=3, **bans) == _only(3)


def test_end_tokens_are_banned_until_enough_are_generated() -> None:
    ends = {"eos_token_ids": [0, 11], "min_new_tokens": 3}
    banned = {0: NEVER, 11: NEVER}
    assert _changes(tokens=[1] * 4, prompt_length=4, **ends) == banned
    assert _changes(tokens=[1] * 6, prompt_length=4, **ends) == banned
    assert _changes(tokens=[1] * 7, prompt_length=4, **ends) == {}


def test_a_minimum_without_end_tokens_bans_nothing() -> None:
    assert _changes(min_new_tokens=3) == {}

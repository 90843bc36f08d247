"""Sampling draws from the distribution of the reference and the options."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness.engine import Golden
from harness.statistics import P_VALUE_FLOOR, p_value
from shaperouter_service.decoding.options import Options
from shaperouter_service.decoding.sampling import Sampling
from shaperouter_service.decoding.search import Logprobs
from shaperouter_service.decoding.state import State
from shaperouter_service.generation.limits import MAX_TOP_LOGPROBS
from shaperouter_service.generation.option import NO_TOKEN

DRAWS = 20_000
# Rows that one compiled function draws at once, and the largest vocabulary of the checkpoints.
ROWS, VOCAB_SIZE = 2000, 128
NEVER = -np.inf


@pytest.fixture(params=["gpt2-untied", "gpt2-odd-heads", "gpt2-bare"])
def tiny(request: pytest.FixtureRequest) -> Golden:
    """Probabilities of three widths, the narrowest and the widest among them.

    The function that draws from them is the same for every model.
    """
    return Golden.read(request.param)


def test_sampled_tokens_have_the_references_distribution(tiny: Golden, is_native: bool) -> None:
    for case in tiny.probabilities:
        # The reference's probabilities at this temperature, as logits for temperature 1.
        probabilities = np.maximum(np.array(case["probabilities"]), 1e-12)
        assert p_value(_draw(is_native, np.log(probabilities)), probabilities) > P_VALUE_FLOOR


def test_temperature_sharpens_as_in_the_reference(tiny: Golden, is_native: bool) -> None:
    by_prompt: dict[tuple[int, ...], dict[float, np.ndarray]] = {}
    for case in tiny.probabilities:
        cases = by_prompt.setdefault(tuple(case["prompt_token_ids"]), {})
        cases[case["temperature"]] = np.maximum(np.array(case["probabilities"]), 1e-12)
    for cases in by_prompt.values():
        drawn = _draw(is_native, np.log(cases[1.0]), temperature=0.7)
        assert p_value(drawn, cases[0.7]) > P_VALUE_FLOOR


def test_truncation_keeps_the_proportions_of_the_remaining_tokens(
    tiny: Golden, is_native: bool
) -> None:
    probabilities = np.maximum(np.array(tiny.probabilities[0]["probabilities"]), 1e-12)
    drawn = _draw(
        is_native, np.log(probabilities), top_k=9, biases=[([int(probabilities.argmax())], NEVER)]
    )
    left = np.sort(probabilities)[-10]
    expected = np.where(probabilities >= left, probabilities, 0)
    expected[probabilities.argmax()] = 0
    assert set(drawn) <= set(np.flatnonzero(expected))
    assert p_value(drawn, expected) > P_VALUE_FLOOR


def test_a_token_depends_on_its_seed_and_position_and_not_on_the_row(
    tiny: Golden, is_native: bool
) -> None:
    logits = np.log(np.maximum(np.array(tiny.probabilities[0]["probabilities"]), 1e-12))
    together = _draw(is_native, logits, seeds=range(64))
    alone = [_draw(is_native, logits, seeds=[seed])[0] for seed in range(8)]
    backwards = _draw(is_native, logits, seeds=range(63, -1, -1))
    assert together.tolist()[:8] == alone
    assert together.tolist() == backwards[::-1].tolist()
    elsewhere = _draw(is_native, logits, seeds=range(64), position=6)
    assert elsewhere.tolist() != together.tolist()


def test_greedy_rows_take_the_likeliest_token_beside_sampling_rows(
    tiny: Golden, is_native: bool
) -> None:
    logits = np.log(np.maximum(np.array(tiny.probabilities[0]["probabilities"]), 1e-12))
    tokens = _draw(is_native, logits, seeds=range(64), do_sample=[seed % 2 for seed in range(64)])
    assert set(tokens[::2]) == {int(np.argmax(logits))}
    assert len(set(tokens[1::2])) > 1


def test_the_new_token_follows_the_sequence_and_an_end_token_ends_it() -> None:
    state = State(
        tokens=tf.constant([[[5, 6, 9, 9]], [[7, 9, 9, 9]]]),
        matches=tf.zeros([2, 1, 4], tf.int32),
        lengths=tf.constant([2, 1]),
        prompt_lengths=tf.constant([1, 1]),
        remaining=tf.constant([7, 7]),
        beams=(),
    )
    records = [Options.of(max_new_tokens=8, eos_token_ids=ends) for ends in ([3], [8, 2])]
    logits = tf.one_hot([[2], [2]], 10)
    after, _ = Sampling(is_native=False).advance(
        logits, state, _stack(records), tf.constant([True, True])
    )
    assert after.tokens.numpy().tolist() == [[[5, 6, 2, 9]], [[7, 2, 9, 9]]]
    assert after.lengths.numpy().tolist() == [3, 2]
    assert after.remaining.numpy().tolist() == [6, 0]


def test_log_probabilities_are_those_before_the_options(is_native: bool) -> None:
    logits = np.array([1.0, 3.0, 0.0, 2.0], np.float32)
    expected = logits - np.log(np.exp(logits).sum())
    plain = _logprobs(is_native, logits, logprobs=2)
    np.testing.assert_allclose(plain.chosen[0], expected[1], rtol=1e-6)
    assert plain.top_tokens[0, :4].tolist() == [1, 3, 0, 2]
    np.testing.assert_allclose(plain.top[0, :4], expected[[1, 3, 0, 2]], rtol=1e-5)
    assert plain.top.shape == (1, MAX_TOP_LOGPROBS)
    banned = _logprobs(is_native, logits, logprobs=1, temperature=0.1, biases=[([1], NEVER)])
    np.testing.assert_allclose(banned.chosen[0], expected[3], rtol=1e-6)
    assert banned.top_tokens[0, 0] == 1


def test_log_probabilities_are_computed_only_on_request(is_native: bool) -> None:
    assert not _logprobs(is_native, np.array([1.0, 3.0], np.float32)).chosen.any()


def _logprobs(is_native: bool, logits: np.ndarray, **options: Any) -> Logprobs:
    state = State.empty(rows=1, beams=1, length=4, max_length=8)
    state.begin(0, [0], 3)
    _, found = _advance(is_native=is_native)(
        tf.constant(logits[np.newaxis, np.newaxis]),
        tf.nest.map_structure(tf.constant, state),
        _stack([Options.of(max_new_tokens=3, **options)]),
        tf.constant([True]),
    )
    return Logprobs(*(field.numpy() for field in found))


def _stack(records: Iterable[Options]) -> Options:
    return tf.nest.map_structure(lambda *fields: tf.concat(fields, 0), *records)


@functools.cache
def _advance(*, is_native: bool) -> Any:
    return tf.function(Sampling(is_native=is_native).advance, jit_compile=True)


def _draw(
    is_native: bool,
    logits: np.ndarray,
    *,
    seeds: Sequence[int] = range(DRAWS),
    position: int = 5,
    do_sample: Sequence[int] | None = None,
    **options: Any,
) -> np.ndarray:
    """Draws a token from the same logits for each seed."""
    padded = np.pad(logits, [0, VOCAB_SIZE - len(logits)], constant_values=NEVER)
    batch = tf.broadcast_to(tf.constant(padded, tf.float32), [ROWS, 1, VOCAB_SIZE])
    record = Options.of(max_new_tokens=1, do_sample=True, **options)
    shared = tf.nest.map_structure(lambda field: tf.repeat(field, ROWS, axis=0), record)
    state = State(
        tokens=tf.fill([ROWS, 1, 8], NO_TOKEN),
        matches=tf.zeros([ROWS, 1, 8], tf.int32),
        lengths=tf.fill([ROWS], position),
        prompt_lengths=tf.fill([ROWS], position),
        remaining=tf.ones([ROWS], tf.int32),
        beams=(),
    )
    tokens = []
    for start in range(0, len(seeds), ROWS):
        part = np.resize(np.array(seeds[start : start + ROWS], np.uint64), ROWS)
        mixed = part * np.uint64(0x9E3779B97F4A7C15)
        halves = np.stack([mixed & np.uint64(0xFFFFFFFF), mixed >> np.uint64(32)], 1)
        samples = np.ones(ROWS) if do_sample is None else np.resize(do_sample, ROWS)
        each = shared._replace(
            seed=tf.constant(halves.astype(np.uint32)), do_sample=tf.constant(samples, tf.bool)
        )
        after, _ = _advance(is_native=is_native)(batch, state, each, tf.ones([ROWS], tf.bool))
        tokens.append(after.tokens[:, 0, position].numpy())
    return np.concatenate(tokens)[: len(seeds)]

"""N-gram bans equal those of Transformers and cost the same for any size."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from harness.engine import Bench
from shaperouter_service.decoding.ngrams import count_matches, extend_matches

MODEL = "gpt2-untied"
# Few tokens, so that runs repeat.
SEQUENCES = st.lists(st.integers(0, 2), min_size=1, max_size=12)


def _counted(tokens: Sequence[int]) -> list[int]:
    """The counts, computed pair by pair."""
    counts = []
    for position in range(len(tokens)):
        count = 0
        while count < position and tokens[position - 1 - count] == tokens[-1 - count]:
            count += 1
        counts.append(count)
    return counts


@given(SEQUENCES)
def test_counts_equal_those_of_comparing_every_pair(tokens: list[int]) -> None:
    assert count_matches(tokens).tolist() == _counted(tokens)


@given(SEQUENCES, st.integers(0, 2))
def test_counts_are_updated_for_each_new_token(tokens: list[int], new: int) -> None:
    # After the sequence's end are tokens of an earlier request.
    matches = tf.constant([[*count_matches(tokens), 9, 9]])
    found = extend_matches(matches, tf.constant([[*tokens, new, new]]), tf.constant([new]))
    assert found[0, : len(tokens) + 1].numpy().tolist() == _counted([*tokens, new])


def _generated(bench: Bench, **options: Any) -> list[int]:
    collected = bench.submit(MODEL, [3, 1, 4, 1, 5, 9, 2, 6], max_new_tokens=24, **options)
    collected.wait()
    return collected.token_ids


@pytest.mark.parametrize("num_beams", [1, 2])
def test_a_size_beyond_the_sequence_bans_nothing(
    benches: Mapping[str, Bench], num_beams: int
) -> None:
    bench = benches[MODEL]
    plain = _generated(bench, num_beams=num_beams)
    assert _generated(bench, num_beams=num_beams, no_repeat_ngram_size=2**31 - 1) == plain


@pytest.mark.parametrize("num_beams", [1, 2])
def test_no_n_gram_repeats_in_calls_of_many_steps(
    benches: Mapping[str, Bench], num_beams: int
) -> None:
    generated = _generated(benches[MODEL], num_beams=num_beams, no_repeat_ngram_size=2)
    sequence = [3, 1, 4, 1, 5, 9, 2, 6, *generated]
    pairs = list(itertools.pairwise(sequence))
    # No n-gram of the prompt itself repeats.
    assert len(generated) == 24
    assert len(pairs) == len(set(pairs))
    assert not np.array_equal(generated, _generated(benches[MODEL], num_beams=num_beams))

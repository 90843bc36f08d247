"""Proposals by hand-computed values: which are made, where they are read, which are used."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from shaperouter_service.decoding.ngrams import count_matches
from shaperouter_service.decoding.speculation import BySource, Checked, Proposals, propose
from shaperouter_service.decoding.state import State
from shaperouter_service.decoding.step_places import (
    MAX_ALL_PROPOSALS,
    MAX_PROPOSALS,
    StepPlaces,
    place_count,
)

ROOM = 24
ALL = MAX_PROPOSALS


def _proposals(
    sequences: Sequence[Sequence[int]], limits: Sequence[int], reads: Sequence[bool] | None = None
) -> list[list[int]]:
    state = State.empty(rows=len(sequences), beams=1, length=ROOM - 1, max_length=ROOM)
    for row, sequence in enumerate(sequences):
        state.begin(row, sequence, max_new_tokens=1)
        state.matches[row, :, : len(sequence)] = count_matches(sequence)
        # Tokens that an earlier request may have left.
        state.tokens[row, :, len(sequence) :] = sequence[-1]
        state.matches[row, :, len(sequence) :] = 9
    tensors: State = tf.nest.map_structure(tf.constant, state)
    needed = tf.constant([True] * len(sequences) if reads is None else reads)
    found = propose(tensors, needed, tf.constant(limits))
    return [
        tokens[:count].tolist()
        for tokens, count in zip(found.tokens.numpy(), found.counts.numpy(), strict=True)
    ]


def test_what_followed_the_newest_tokens_before_is_proposed() -> None:
    sequence = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2]
    assert _proposals([sequence], [4]) == [[3, 4, 5, 6]]


def test_the_longest_repetition_counts_and_then_the_newest() -> None:
    assert _proposals([[7, 1, 2, 5, 8, 1, 2, 6, 7, 1, 2]], [1]) == [[5]]
    assert _proposals([[1, 2, 5, 8, 1, 2, 6, 7, 1, 2]], [1]) == [[6]]


def test_proposals_repeat_what_followed_beyond_the_end_of_the_sequence() -> None:
    assert _proposals([[9, 1, 2, 3, 1, 2, 3]], [ALL]) == [[1, 2, 3, 1, 2, 3, 1]]


def test_nothing_is_proposed_without_a_repetition_a_limit_or_a_need() -> None:
    repeats, differs = [1, 2, 3, 1, 2], [1, 2, 3, 4, 2]
    assert _proposals([repeats, differs], [2, 2]) == [[3, 1], []]
    assert _proposals([repeats, repeats], [0, 1], [True, False]) == [[], []]


def test_the_proposals_of_all_rows_are_bounded() -> None:
    repeats = [1, 2, 3, 1, 2, 3]
    counts = [len(found) for found in _proposals([repeats] * 5, [ALL] * 5)]
    assert counts == [7, 7, 7, 3, 0]
    assert sum(counts) == MAX_ALL_PROPOSALS


def test_places_hold_the_tokens_of_rows_one_after_the_other() -> None:
    places = StepPlaces.of(tf.constant([True, False, True]), tf.constant([2, 0, 0]))
    assert places.count.numpy().tolist() == [4]
    assert places.rows.numpy()[:4].tolist() == [0, 0, 0, 2]
    assert places.offsets.numpy()[:4].tolist() == [0, 1, 2, 0]
    assert places.firsts.numpy()[[0, 2]].tolist() == [0, 3]
    used = places.used.numpy()
    assert used.tolist() == [True] * 4 + [False] * (place_count(3) - 4)
    # The unused places, too, must have a valid position.
    assert (places.offsets.numpy() >= 0).all()
    assert (places.offsets.numpy() <= MAX_PROPOSALS).all()


def test_logits_are_used_until_a_proposal_does_not_come() -> None:
    rows = 2
    proposals = Proposals(
        reads=tf.constant([True, True]),
        tokens=tf.constant([[5, 6, 7, 0, 0, 0, 0], [5, 6, 7, 0, 0, 0, 0]]),
        counts=tf.constant([3, 1]),
        drafted=tf.constant([False, True]),
    )
    places = StepPlaces.of(proposals.reads, proposals.counts)
    logits = tf.tile(tf.range(place_count(rows), dtype=tf.float32)[:, tf.newaxis], [1, 4])
    checked = Checked.none(rows, 4).with_step(logits, places, proposals)
    everyone = tf.constant([True, True])
    seen, came = [], []
    # Row 0 gets two proposals and then another token; row 1 its only proposal, and one after it.
    for new in ([5, 5], [6, 6], [9, 9]):
        left = checked.is_left
        seen.append(np.where(left, checked.next_logits.numpy()[:, 0, 0], -1).astype(int).tolist())
        checked, proposed = checked.after(tf.constant(new), everyone & left)
        came.append(proposed.numpy().tolist())
    assert seen == [[0, 4], [1, 5], [2, -1]]
    assert came == [[True, True], [True, False], [False, False]]
    assert not np.any(checked.is_left)
    assert [checked.proposed_tokens.of_row(row) for row in (0, 1)] == [(3, 0), (0, 1)]
    assert [checked.accepted_tokens.of_row(row) for row in (0, 1)] == [(2, 0), (0, 1)]


def test_a_call_stops_asking_a_source_whose_proposals_do_not_come() -> None:
    # Limit, proposed and accepted in this call, and the limit of the next step.
    cases = (
        (4, 0, 0, 4),
        (4, 11, 0, 4),
        (4, 12, 1, 0),
        (4, 12, 2, 4),
        (7, 20, 0, 7),
        (7, 21, 2, 0),
        (1, 3, 0, 1),
        (1, 4, 0, 0),
        (1, 4, 1, 1),
        (0, 0, 0, 0),
    )
    # A row has another case for each source, which count apart.
    pairs = zip(zip(*cases, strict=True), zip(*cases[::-1], strict=True), strict=True)
    limits, proposed, accepted, expected = (
        BySource(tf.constant(ngram), tf.constant(draft)) for ngram, draft in pairs
    )
    checked = Checked.none(len(cases), 4)._replace(
        proposed_tokens=proposed, accepted_tokens=accepted
    )
    found = checked.limits(limits)
    np.testing.assert_array_equal(found.ngram, expected.ngram)
    np.testing.assert_array_equal(found.draft, expected.draft)

"""Dynamic time warping finds the cheapest path, and medians filter attention."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shaperouter_service.speech.transcription.alignment import median_filter, token_positions, warp

SHAPES = [(1, 1), (1, 6), (6, 1), (3, 4), (4, 3), (5, 5)]


def cheapest(costs: np.ndarray) -> float:
    """Of all paths, by trying them."""
    count, length = costs.shape
    best = np.full(costs.shape, np.inf)
    best[0, 0] = costs[0, 0]
    for row, column in itertools.product(range(count), range(length)):
        before = [
            best[row - down, column - right]
            for down, right in ((1, 1), (1, 0), (0, 1))
            if row >= down and column >= right
        ]
        if before:
            best[row, column] = costs[row, column] + min(before)
    return float(best[-1, -1])


@given(st.sampled_from(SHAPES), st.integers(0, 2**32 - 1))
def test_a_path_is_the_cheapest(shape: tuple[int, int], seed: int) -> None:
    # Few different costs, so that many ways are equally cheap.
    costs = np.random.default_rng(seed).integers(-2, 2, shape).astype(float)
    rows, columns = warp(costs)
    assert costs[rows, columns].sum() == pytest.approx(cheapest(costs), abs=1e-5)


@given(st.sampled_from(SHAPES), st.integers(0, 2**32 - 1))
def test_a_path_goes_from_corner_to_corner_step_by_step(shape: tuple[int, int], seed: int) -> None:
    rows, columns = warp(np.random.default_rng(seed).standard_normal(shape))
    assert (rows[0], columns[0], rows[-1], columns[-1]) == (0, 0, shape[0] - 1, shape[1] - 1)
    steps = set(zip(np.diff(rows), np.diff(columns), strict=True))
    assert steps <= {(0, 1), (1, 0), (1, 1)}


def test_a_path_of_equal_costs_moves_right_at_the_end() -> None:
    rows, columns = warp(np.zeros([3, 3]))
    assert (rows.tolist(), columns.tolist()) == ([0, 1, 2, 2, 2], [0, 0, 0, 1, 2])


def test_medians_are_of_mirrored_values() -> None:
    values = np.array([[5.0, 1.0, 4.0, 2.0, 3.0]])
    assert median_filter(values, 3).tolist() == [[1.0, 4.0, 2.0, 3.0, 2.0]]


def test_fewer_values_than_half_of_the_width_are_left() -> None:
    values = np.array([3.0, 1.0, 2.0])
    assert median_filter(values, 7).tolist() == [3.0, 1.0, 2.0]


def test_tokens_begin_where_attention_moves_to() -> None:
    # Two heads; each of three tokens attends to 20 positions, and later ones are padding.
    scores = np.zeros([2, 3, 100])
    for token in range(3):
        scores[:, token, 20 * token : 20 * (token + 1)] = 8
    scores[:, :, 60:] = 50
    assert token_positions(scores, 60) == pytest.approx([0, 20, 40], abs=1)


def test_a_place_that_all_tokens_attend_to_alike_says_nothing() -> None:
    assert token_positions(np.zeros([1, 2, 30]), 30)[0] == 0

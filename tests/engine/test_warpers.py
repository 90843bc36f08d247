"""Warpers keep the same tokens as those of Transformers, and treat ties alike."""

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness.engine import Options
from shaperouter_service.decoding.warpers import warp

ROWS = 8
# Smaller than what is added up at a time, and several times that and a part: XLA adds up columns of
# 128 numbers, the kernels up to 1,024 numbers.
VOCAB_SIZES = (40, 300, 2053)
TABLES = 12
NEVER = -np.inf

# Single precision moves a sum of probabilities, or a logit, by less: nearer to the limit a token
# may stay or go.
SLACK = 2e-5


# Warps a table of scores; see `warped`.
Warp = Callable[..., np.ndarray]


@functools.cache
def _compiled(*, is_native: bool) -> Any:
    return tf.function(functools.partial(warp, is_native=is_native), jit_compile=True)


@pytest.fixture
def warped(is_native: bool) -> Warp:
    """Warps with XLA's operations, or with the native kernels."""

    def compute(
        scores: np.ndarray,
        options: Sequence[dict[str, Any]],
        min_kept: Sequence[int] = (1,) * ROWS,
        applies: Sequence[bool] = (True,) * ROWS,
    ) -> np.ndarray:
        records = [Options.of(max_new_tokens=1, **row) for row in options]
        result: np.ndarray = _compiled(is_native=is_native)(
            tf.constant(scores, tf.float32),
            tf.nest.map_structure(lambda *fields: tf.concat(fields, 0), *records),
            tf.constant(min_kept, tf.int32),
            tf.constant(applies),
        ).numpy()
        return result

    return compute


def _one(warped: Warp, scores: Sequence[float], min_kept: int = 1, **options: Any) -> list[float]:
    """Warps a short row, padded with tokens that cannot be chosen."""
    row = [*scores, *[NEVER] * (VOCAB_SIZES[0] - len(scores))]
    table = np.zeros([ROWS, VOCAB_SIZES[0]])
    table[0] = row
    found = warped(table, [options, *[{}] * (ROWS - 1)], [min_kept] * ROWS)[0]
    return found[: len(scores)].tolist()


def _scores(rng: np.random.Generator, vocab_size: int) -> np.ndarray:
    """Flat and steep rows, every second with ties and some with impossible tokens."""
    scores = rng.normal(size=[ROWS, vocab_size]) * rng.uniform(0.2, 5, size=[ROWS, 1])
    scores[::2] = np.round(scores[::2] * 2) / 2
    scores[1:5][rng.random([4, vocab_size]) < 0.3] = NEVER
    return scores.astype(np.float32)


# --- What Transformers leaves: between these two, `slack` to either side of the limit ----------


def _softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()


def _with_ties(values: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Transformers' sorting keeps some tied tokens; the service keeps all of them."""
    return values >= values[left].min()


def _top_k(scores: np.ndarray, k: int, min_kept: int, slack: float) -> np.ndarray:
    k = min(max(k, min_kept), len(scores))
    return scores >= np.sort(scores)[-k]


def _top_p(scores: np.ndarray, p: float, min_kept: int, slack: float) -> np.ndarray:
    order = np.argsort(scores)
    removed = np.cumsum(_softmax(scores)[order]) <= 1 - (p + slack)
    removed[-min_kept:] = False
    return _with_ties(scores, order[~removed])


def _min_p(scores: np.ndarray, p: float, min_kept: int, slack: float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        left = np.log(_softmax(scores)) >= np.log(_softmax(scores).max() * p) - slack
    left[np.argsort(scores)[-min_kept:]] = True
    return _with_ties(scores, left)


def _typical_p(scores: np.ndarray, p: float, min_kept: int, slack: float) -> np.ndarray:
    probabilities = _softmax(scores)
    with np.errstate(divide="ignore"):
        surprise = -np.log(probabilities)
    entropy = sum(s * p for s, p in zip(surprise, probabilities, strict=True) if p > 0)
    distance = np.abs(surprise - entropy)
    order = np.argsort(distance)
    last = (np.cumsum(probabilities[order]) < p + slack).sum()
    last = max(min(last, len(scores) - 1), min_kept - 1)
    return distance <= distance[order[last]] + slack


def _epsilon_cutoff(scores: np.ndarray, p: float, min_kept: int, slack: float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        left = np.log(_softmax(scores)) >= np.log(p) - slack
    left[np.argsort(scores)[-min_kept:]] = True
    return _with_ties(scores, left)


def _eta_cutoff(scores: np.ndarray, p: float, min_kept: int, slack: float) -> np.ndarray:
    probabilities = _softmax(scores)
    surprise = [-p * np.log(p) for p in probabilities if p > 0]
    return _epsilon_cutoff(scores, min(p, np.sqrt(p) * np.exp(-sum(surprise))), min_kept, slack)


KINDS: list[tuple[str, list[Any], Callable[..., np.ndarray]]] = [
    ("top_k", [1, 2, 5, 39, 40, 41, 10_000], _top_k),
    ("top_p", [1e-6, 0.01, 0.3, 0.7, 0.95, 0.9999], _top_p),
    ("min_p", [1e-6, 0.01, 0.1, 0.5, 1.0], _min_p),
    ("typical_p", [1e-6, 0.05, 0.3, 0.7, 0.95, 0.9999], _typical_p),
    ("epsilon_cutoff", [1e-6, 0.01, 0.1, 0.5, 0.9999], _epsilon_cutoff),
    ("eta_cutoff", [1e-6, 0.01, 0.1, 0.5, 0.9999], _eta_cutoff),
]


@pytest.mark.parametrize("kind", KINDS, ids=[kind[0] for kind in KINDS])
@pytest.mark.parametrize("vocab_size", VOCAB_SIZES)
def test_warpers_keep_the_same_tokens_as_the_reference(
    warped: Warp,
    vocab_size: int,
    kind: tuple[str, list[Any], Callable[..., np.ndarray]],
    rng: random.Random,
) -> None:
    name, values, reference = kind
    numbers = np.random.default_rng(rng.getrandbits(32))
    for _ in range(TABLES):
        scores = _scores(numbers, vocab_size)
        options = [
            {name: rng.choice(values), "temperature": rng.choice([0.5, 1.0, 2.0])} for _ in scores
        ]
        min_kept_counts = [rng.choice([1, 1, 2, 3, 9]) for _ in scores]
        found = warped(scores, options, min_kept_counts)
        for row, option, min_kept, left in zip(
            scores, options, min_kept_counts, found, strict=True
        ):
            tempered = row.astype(np.float64) / option["temperature"]
            possible = tempered > NEVER
            surely = reference(tempered, option[name], min_kept, -SLACK) & possible
            perhaps = reference(tempered, option[name], min_kept, SLACK) & possible
            kept = left > NEVER
            assert (kept >= surely).all(), (option, min_kept)
            assert (kept <= perhaps).all(), (option, min_kept)
            np.testing.assert_array_equal(left[kept], tempered[kept].astype(np.float32))


def _mixed(rng: random.Random) -> dict[str, Any]:
    options = {name: rng.choice(values) for name, values, _ in KINDS if rng.random() < 0.6}
    return options | {"temperature": rng.choice([0.5, 1.0, 2.0])}


def test_warpers_apply_in_order(warped: Warp, rng: random.Random) -> None:
    scores = _scores(np.random.default_rng(rng.getrandbits(32)), VOCAB_SIZES[1])
    options = [_mixed(rng) for _ in scores]
    min_kept = [rng.choice([1, 2, 9]) for _ in scores]
    expected = scores
    for name in ("temperature", *(kind[0] for kind in KINDS)):
        only = [{name: row[name]} if name in row else {} for row in options]
        expected = warped(expected, only, min_kept)
    np.testing.assert_array_equal(warped(scores, options, min_kept), expected)


def test_each_row_is_independent_of_the_others(warped: Warp, rng: random.Random) -> None:
    scores = _scores(np.random.default_rng(rng.getrandbits(32)), VOCAB_SIZES[1])
    options = [_mixed(rng) for _ in scores]
    together = warped(scores, options)
    for index in range(ROWS):
        others = [{"temperature": 3.0} if row != index else options[row] for row in range(ROWS)]
        applies = [row == index for row in range(ROWS)]
        np.testing.assert_array_equal(
            warped(scores, others, applies=applies)[index], together[index]
        )


def test_without_options_scores_stay_as_they_are(warped: Warp, rng: random.Random) -> None:
    scores = _scores(np.random.default_rng(rng.getrandbits(32)), VOCAB_SIZES[0])
    np.testing.assert_array_equal(warped(scores, [{}] * ROWS), scores)
    company = warped(scores, [{"top_k": 1}, *[{}] * (ROWS - 1)])
    np.testing.assert_array_equal(company[1:], scores[1:])


# --- By hand ------------------------------------------------------------------------------------

# Probabilities 1/2, 1/4, 1/8, 1/8, as logits that differ from their logarithms by a constant.
HALVES = (np.log([0.5, 0.25, 0.125, 0.125]) + 3).tolist()


def _left(warped: Warp, scores: Sequence[float], **options: Any) -> list[int]:
    return [token for token, score in enumerate(_one(warped, scores, **options)) if score > NEVER]


def test_temperature_divides(warped: Warp) -> None:
    assert _one(warped, [1.0, -2.0, 0.0], temperature=0.5) == [2.0, -4.0, 0.0]


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"top_k": 2}, [0, 1]),
        ({"top_k": 3}, [0, 1, 2, 3]),  # the third and the fourth are equal
        ({"top_k": 10_000}, [0, 1, 2, 3]),
        ({"top_p": 1e-9}, [0]),
        ({"top_p": 0.499}, [0]),
        ({"top_p": 0.501}, [0, 1]),
        ({"top_p": 0.76}, [0, 1, 2, 3]),
        ({"min_p": 0.51}, [0]),
        ({"min_p": 0.49}, [0, 1]),
        ({"min_p": 0.24}, [0, 1, 2, 3]),
        # The entropy is 1.75 bits: 1/4 is the nearest, then 1/2 (0.75 off), then 1/8 (1.25 off).
        ({"typical_p": 1e-9}, [1]),
        ({"typical_p": 0.3}, [0, 1]),
        ({"typical_p": 0.76}, [0, 1, 2, 3]),
        ({"epsilon_cutoff": 0.51}, [0]),
        ({"epsilon_cutoff": 0.24}, [0, 1]),
        ({"epsilon_cutoff": 0.12}, [0, 1, 2, 3]),
        # exp(-1.75 bits) is 0.297: 0.5 becomes 0.21, and 0.1 becomes 0.094.
        ({"eta_cutoff": 0.5}, [0, 1]),
        ({"eta_cutoff": 0.1}, [0, 1, 2, 3]),
        # The second truncation sees the tokens that the first left.
        ({"top_k": 2, "top_p": 0.66}, [0]),
        ({"top_k": 2, "top_p": 0.67}, [0, 1]),
        ({"temperature": 0.5, "top_p": 0.72}, [0]),  # 16/22 instead of 1/2
    ],
)
def test_a_small_distribution(warped: Warp, options: dict[str, Any], left: list[int]) -> None:
    assert _left(warped, HALVES, **options) == left


@pytest.mark.parametrize(
    "option",
    [{"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}, {"epsilon_cutoff": 0.9}, {"eta_cutoff": 0.9}],
)
def test_the_minimum_number_of_tokens_is_kept(warped: Warp, option: dict[str, Any]) -> None:
    assert _left(warped, HALVES, **option) == [0]
    assert _left(warped, HALVES, min_kept=2, **option) == [0, 1]
    assert _left(warped, HALVES, min_kept=3, **option) == [0, 1, 2, 3]


def test_typical_sampling_keeps_at_least_the_most_typical_tokens(warped: Warp) -> None:
    assert _left(warped, HALVES, min_kept=2, typical_p=1e-9) == [0, 1]


@pytest.mark.parametrize(
    "option", [{"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.9}, {"typical_p": 0.1}]
)
def test_tied_tokens_are_kept_together(warped: Warp, option: dict[str, Any]) -> None:
    assert _left(warped, [0.0] * 7, **option) == list(range(7))


@pytest.mark.parametrize(
    "option", [{"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.1}, {"typical_p": 0.9}]
)
def test_the_only_possible_token_is_kept(warped: Warp, option: dict[str, Any]) -> None:
    assert _left(warped, [NEVER, -1.0, NEVER], min_kept=2, **option) == [1]


@pytest.mark.parametrize("scores", [[0.0, -0.0, 2e-38, -2e-38], [1e30, -1e30, 3e38, -3e38]])
def test_tiny_and_huge_scores_are_ordered(warped: Warp, scores: list[float]) -> None:
    assert _left(warped, scores, top_k=1) == [int(np.argmax(scores))]

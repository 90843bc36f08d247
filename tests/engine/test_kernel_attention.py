"""The native kernels compute attention like the reference."""

import numpy as np
import pytest
import tensorflow as tf

from harness.kernels import compiled
from shaperouter_service import kernels
from shaperouter_service.decoding.caches import narrowed, widened
from shaperouter_service.models import NARROW_CACHES, layers

pytestmark = pytest.mark.usefixtures("native_kernels")


ATTENTIONS = {
    # R, H, Q, T, D: a step, hypotheses, a prompt; sizes that no vector divides.
    "step": (3, 2, 1, 70, 64),
    "beams": (2, 3, 9, 45, 16),
    "odd": (2, 1, 4, 31, 13),
    "prompt": (1, 2, 37, 64, 40),
}


def attention_case(name: str) -> tuple[list[np.ndarray], np.ndarray]:
    """Query, keys, values and ends: some positions of each row, all, and more than all."""
    rows, heads, queries, length, size = ATTENTIONS[name]
    rng = np.random.default_rng(0)
    tensors = [
        rng.standard_normal((rows, heads, count, size), np.float32)
        for count in (queries, length, length)
    ]
    return tensors, np.asarray([length - 5, length, length + 9][:rows], np.int32)


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_equals_the_reference(name: str, causal: bool) -> None:
    (query, keys, values), ends = attention_case(name)
    rng = np.random.default_rng(1)
    visible = rng.random((query.shape[0], query.shape[2], keys.shape[2])) < 0.5
    visible[..., 0] = True
    attend = compiled(
        lambda *tensors: kernels.attend(
            *tensors[:3], tf.constant(ends), 0.3, causal=causal, visible=tensors[3]
        )
    )
    found = attend(query, keys, values, visible)
    own_ends = np.minimum(ends, keys.shape[2])[:, np.newaxis, np.newaxis]
    if causal:
        own_ends = ends[:, np.newaxis, np.newaxis] - np.arange(query.shape[2])[::-1, np.newaxis]
    seen = visible & (np.arange(keys.shape[2]) < own_ends)
    expected = layers.attention(
        *map(tf.constant, (query, keys, values)), tf.constant(seen[:, np.newaxis]), 0.3
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_caches_in_bfloat16_give_what_their_numbers_give(name: str) -> None:
    (query, keys, values), ends = attention_case(name)
    narrow = [narrowed(tf.constant(each), NARROW_CACHES) for each in (keys, values)]
    attend = compiled(
        lambda *tensors: kernels.attend(*tensors, tf.constant(ends), 0.3, causal=True)
    )
    np.testing.assert_array_equal(
        attend(query, *narrow), attend(query, *(widened(each) for each in narrow))
    )


def test_attention_depends_neither_on_cache_length_nor_on_other_rows() -> None:
    (query, keys, values), _ = attention_case("step")
    ends = tf.constant([20, 33, 70])

    def attend(rows: slice, length: int) -> np.ndarray:
        found = compiled(lambda *tensors: kernels.attend(*tensors, ends[rows], 1.0))(
            query[rows], keys[rows, :, :length], values[rows, :, :length]
        )
        result: np.ndarray = found.numpy()
        return result

    together = attend(slice(0, 3), 70)
    np.testing.assert_array_equal(attend(slice(0, 1), 20), together[:1])
    np.testing.assert_array_equal(attend(slice(1, 2), 41), together[1:2])


def test_positions_beyond_an_end_are_not_read() -> None:
    (query, keys, values), ends = attention_case("prompt")
    attend = compiled(
        lambda *tensors: kernels.attend(*tensors, tf.constant(ends), 1.0, causal=True)
    )
    expected = attend(query, keys, values).numpy()
    keys[:, :, ends[0] :], values[:, :, ends[0] :] = np.nan, np.inf
    np.testing.assert_array_equal(attend(query, keys, values), expected)


def test_a_query_without_keys_gets_zeros() -> None:
    (query, keys, values), _ = attention_case("step")
    attend = compiled(lambda *tensors: kernels.attend(*tensors, 1.0))
    assert not attend(query, keys, values, tf.constant([-3, 0, 0])).numpy().any()


@pytest.mark.parametrize("name", ["beams", "odd", "prompt"])
def test_queries_that_are_not_needed_get_zeros_and_change_no_other(name: str) -> None:
    (query, keys, values), ends = attention_case(name)
    counts = np.asarray([1, query.shape[2] - 1, 0][: query.shape[0]], np.int32)

    def attend(counts: np.ndarray | None) -> np.ndarray:
        given = None if counts is None else tf.constant(counts)
        found = compiled(
            lambda *tensors: kernels.attend(
                *tensors, tf.constant(ends), 0.3, counts=given, causal=True
            )
        )(query, keys, values)
        result: np.ndarray = found.numpy()
        return result

    needed = np.arange(query.shape[2]) < counts[:, np.newaxis]
    expected = np.where(needed[:, np.newaxis, :, np.newaxis], attend(None), 0)
    np.testing.assert_array_equal(attend(counts), expected)


def test_a_layer_of_a_cache_is_attended_to_like_any_other_cache() -> None:
    (query, keys, values), ends = attention_case("beams")
    rng = np.random.default_rng(1)
    caches = rng.standard_normal((2, query.shape[0], 3, *keys.shape[1:]), np.float32)
    caches[0, :, 1], caches[1, :, 1] = keys, values
    of_stack = compiled(
        lambda *tensors: kernels.attend(
            *tensors, tf.constant(ends), 0.3, layer=tf.constant(1, tf.int32)
        )
    )
    alone = compiled(lambda *tensors: kernels.attend(*tensors, tf.constant(ends), 0.3))
    np.testing.assert_array_equal(of_stack(query, *caches), alone(query, keys, values))


def test_a_bias_is_added_to_scores() -> None:
    (query, keys, values), _ = attention_case("odd")
    shape = (*query.shape[:3], keys.shape[2])
    bias = np.random.default_rng(1).standard_normal(shape, np.float32)
    ends = tf.constant([keys.shape[2]] * query.shape[0])
    found = compiled(lambda *tensors: kernels.attend(*tensors[:3], ends, 0.3, bias=tensors[3]))(
        query, keys, values, bias
    )
    expected = layers.attention(
        *map(tf.constant, (query, keys, values)), tf.ones([1, 1, 1, 1], tf.bool), 0.3, bias=bias
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_nan_affects_only_the_queries_that_see_it(odd: float) -> None:
    (query, keys, values), _ = attention_case("step")
    keys[1, 0, 7] = odd
    attend = compiled(lambda *tensors: kernels.attend(*tensors, tf.constant([70, 70, 70]), 1.0))
    found = np.isfinite(attend(query, keys, values).numpy())
    assert not found[1, 0].any()
    assert found[1, 1].all()
    assert found[[0, 2]].all()


def test_softmax_handles_scores_of_any_size() -> None:
    # From equal scores to scores beside which all others vanish.
    length = 64
    values = np.eye(length, dtype=np.float32)[np.newaxis, np.newaxis]
    for spread in (0.0, 1.0, 30.0, 86.0, 200.0, 1e4):
        keys = np.zeros((1, 1, length, length), np.float32)
        keys[..., 0] = np.linspace(-spread, 0, length)
        query = np.zeros((1, 1, 1, length), np.float32)
        query[..., 0] = 1
        attend = compiled(lambda *tensors: kernels.attend(*tensors, tf.constant([length]), 1.0))
        found = attend(query, keys, values).numpy()[0, 0, 0].astype(np.float64)
        exact = np.exp(keys[0, 0, :, 0].astype(np.float64))
        np.testing.assert_allclose(found, exact / exact.sum(), rtol=2e-6, atol=1e-37)


@pytest.mark.parametrize("causal", [False, True])
def test_a_group_of_heads_shares_keys_and_sees_a_window(causal: bool) -> None:
    rows, heads, group, queries, length, size = 2, 3, 2, 5, 45, 19
    rng = np.random.default_rng(2)
    query = rng.standard_normal((rows, heads * group, queries, size), np.float32)
    keys, values = rng.standard_normal((2, rows, heads, length, size), np.float32)
    starts, ends = np.asarray([-4, 21], np.int32), np.asarray([30, 45], np.int32)
    found = compiled(
        lambda *tensors: kernels.attend(
            *tensors, tf.constant(ends), 0.3, starts=tf.constant(starts), causal=causal, cap=0.7
        )
    )(query, keys, values)
    earlier = np.arange(queries)[::-1] * causal  # [Q]
    positions = np.arange(length)
    seen = positions >= (starts[:, np.newaxis] - earlier)[..., np.newaxis]
    seen &= positions < (ends[:, np.newaxis] - earlier)[..., np.newaxis]  # [R, Q, T]
    expected = layers.attention(
        tf.constant(query),
        *(tf.repeat(tf.constant(each), group, axis=1) for each in (keys, values)),
        tf.constant(seen[:, np.newaxis]),
        0.3,
        cap=0.7,
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_positions_before_a_window_are_not_read() -> None:
    (query, keys, values), ends = attention_case("prompt")
    # A block's window begins at most a vector of 16 positions before the first query's.
    starts = ends - 20
    attend = compiled(
        lambda *tensors: kernels.attend(
            *tensors, tf.constant(ends), 1.0, starts=tf.constant(starts)
        )
    )
    expected = attend(query, keys, values).numpy()
    unseen = int(starts[0]) // 16 * 16
    assert unseen > 0
    keys[:, :, :unseen], values[:, :, :unseen] = np.nan, np.inf
    np.testing.assert_array_equal(attend(query, keys, values), expected)

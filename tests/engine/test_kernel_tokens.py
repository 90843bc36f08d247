"""The native kernels for text encoders give the results of the reference."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from harness.kernels import TYPES, compiled
from shaperouter_service import kernels
from shaperouter_service.kernels import pack
from shaperouter_service.kernels.selfcheck import text_attention
from shaperouter_service.models import DeviceKind, Weights, layers

pytestmark = pytest.mark.usefixtures("native_kernels")


# H, D: heads that no vector divides, whole vectors, and so large that few keys are taken at a time.
HEADS = {"odd": (3, 13), "whole": (2, 32), "large": (1, 300)}
# Tokens of each text; the longest takes several turns, and one text has none.
TEXTS = (1, 5, 0, 300, 37)
REACH = 20


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("biased", [False, True])
def test_attention_of_joined_texts_equals_that_of_each(name: str, biased: bool) -> None:
    heads, size = HEADS[name]
    rng = np.random.default_rng(0)
    room = sum(TEXTS) + 9
    projected = rng.standard_normal((room, 3 * heads * size), np.float32)
    projected[sum(TEXTS) :] = np.nan
    starts = np.cumsum([0, *TEXTS]).astype(np.int32)
    positions = np.concatenate([np.arange(count) for count in (*TEXTS, 9)]).astype(np.int32)
    biases = rng.standard_normal((heads, 2 * REACH + 1), np.float32) if biased else None

    @compiled
    def attend_tokens(projected: tf.Tensor, starts: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
        table = None if biases is None else tf.constant(biases)
        return kernels.attend_tokens(
            projected, starts, 0.3, heads=heads, positions=places, biases=table
        )

    def attend(projected: np.ndarray, starts: np.ndarray) -> np.ndarray:
        result: np.ndarray = attend_tokens(projected, starts, positions).numpy()
        return result

    found = attend(projected, starts)
    for start, end in itertools.pairwise(starts):
        if end > start:
            expected = text_attention(projected[start:end], heads, 0.3, biases)
            np.testing.assert_allclose(found[start:end], expected, rtol=1e-5, atol=2e-5)
    # Equal to the last bit: other texts must not change a text's result.
    moved = np.concatenate([projected[starts[3] : starts[4]], projected[: -TEXTS[3]]])
    positions[: TEXTS[3]] = np.arange(TEXTS[3])
    alone = attend(moved, np.asarray([0, *[TEXTS[3]] * len(TEXTS)], np.int32))
    np.testing.assert_array_equal(alone[: TEXTS[3]], found[starts[3] : starts[4]])


@pytest.mark.parametrize("starts", [[0, 5, 3], [-1, 2, 5], [0, 2, 6]])
def test_starts_that_do_not_ascend_within_the_tokens_are_refused(starts: list[int]) -> None:
    projected = np.zeros((5, 12), np.float32)
    attend = compiled(lambda x, starts: kernels.attend_tokens(x, starts, 1.0, heads=2))
    with pytest.raises(tf.errors.InvalidArgumentError, match="starts must ascend"):
        attend(projected, np.asarray(starts, np.int32))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", [0, 1, 13, 40])
def test_only_as_many_rows_as_count_are_computed(dtype: tf.DType, count: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((29, 50), np.float32)
    panels = pack(rng.standard_normal((50, 35), np.float32), np.dtype(dtype.as_numpy_dtype))
    scales = None if panels.scales is None else tf.constant(panels.scales)

    @compiled
    def multiply(x: tf.Tensor, values: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        return kernels.linear(x, values, panels.shape, scales=scales, count=count)

    whole = compiled(lambda x, values: kernels.linear(x, values, panels.shape, scales=scales))
    found = multiply(x, panels.values, np.asarray([count], np.int32)).numpy()[:count]
    np.testing.assert_array_equal(found, whole(x, panels.values).numpy()[:count])


@pytest.mark.parametrize("tables", [1, 2, 3])
@pytest.mark.parametrize("width", [1, 36, 97])
def test_embeddings_are_norms_of_the_sums_of_rows(tables: int, width: int) -> None:
    rng = np.random.default_rng(0)
    values = [rng.standard_normal((size, width), np.float32) for size in (50, 9, 2)[:tables]]
    # Indices beyond a table are clamped, as by XLA.
    ids = [rng.integers(-1, len(table) + 1, 23).astype(np.int32) for table in values]
    gain, bias = rng.standard_normal((2, width), np.float32)
    weights = Weights({"n.weight": tf.constant(gain), "n.bias": tf.constant(bias)}, DeviceKind.CPU)
    rows = [
        table[np.clip(index, 0, len(table) - 1)] for table, index in zip(values, ids, strict=True)
    ]
    expected = layers.layer_norm(weights, "n", tf.constant(sum(rows)), 1e-3)

    @compiled
    def embed(values: list[tf.Tensor], ids: list[tf.Tensor]) -> tf.Tensor:
        return kernels.embed(values, ids, tf.constant(gain), tf.constant(bias), 1e-3)

    found = embed(list(map(tf.constant, values)), list(map(tf.constant, ids)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=5e-6)


def test_sums_of_texts_have_the_order_of_the_tokens() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((sum(TEXTS) + 5, 37), np.float32)
    starts = np.cumsum([0, *TEXTS]).astype(np.int32)
    found = compiled(kernels.sum_tokens)(x, starts).numpy()
    for text, (start, end) in enumerate(itertools.pairwise(starts)):
        in_order = np.zeros(37, np.float32)
        for token in x[start:end]:
            in_order += token
        np.testing.assert_array_equal(found[text], in_order)

"""The native kernels multiply, activate and look up like the reference."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from harness.kernels import INT4, TYPES, compiled
from shaperouter_service import kernels
from shaperouter_service.kernels import Panels, pack
from shaperouter_service.kernels.panels import GROUP, SCALED
from shaperouter_service.kernels.selfcheck import activation, unpack, whole_bytes

pytestmark = pytest.mark.usefixtures("native_kernels")

MAX_ROWS = 70


# A single number, less than a panel, whole panels, odd sizes, and more inputs than one piece.
@pytest.mark.parametrize(("inputs", "columns"), [(1, 1), (7, 5), (64, 48), (97, 131), (600, 33)])
@pytest.mark.parametrize("dtype", TYPES)
def test_products_equal_the_reference_for_any_number_of_rows(
    inputs: int, columns: int, dtype: tf.DType
) -> None:
    rng = np.random.default_rng(0)
    if dtype in (tf.int8, INT4):
        x = whole_bytes(rng, MAX_ROWS, inputs)
    else:
        # What rounding to the weights' type leaves as it is.
        x = rng.standard_normal((MAX_ROWS, inputs)).astype(dtype.as_numpy_dtype).astype(np.float32)
    matrix = rng.standard_normal((inputs, columns), np.float32)
    bias = rng.standard_normal(columns, np.float32)
    panels = pack(matrix, np.dtype(dtype.as_numpy_dtype))
    scales = None if panels.scales is None else tf.constant(panels.scales)

    @compiled
    def products(x: tf.Tensor, values: tf.Tensor) -> list[tf.Tensor]:
        return [
            kernels.linear(x[:rows], values, panels.shape, scales=scales, bias=tf.constant(bias))
            for rows in range(1, MAX_ROWS + 1)
        ]

    found = products(x, panels.values)
    held = unpack(panels).astype(np.float64)
    expected = x.astype(np.float64) @ held + bias
    # Relative to the size of the summands: their sum may be close to 0.
    size = np.abs(x).astype(np.float64) @ np.abs(held) + np.abs(bias)
    for rows, product in enumerate(found, 1):
        assert np.all(np.abs(product - expected[:rows]) <= 1e-5 * size[:rows]), rows
        # Equal to the last bit: other rows must not change a row's result.
        np.testing.assert_array_equal(product, found[-1][:rows])


# Less than a vector, one panel, and a size that is a multiple of neither.
@pytest.mark.parametrize("columns", [3, 16, 83])
@pytest.mark.parametrize("kind", kernels.Activation)
def test_activations_equal_the_reference(kind: kernels.Activation, columns: int) -> None:
    rows = 29
    # Inputs far below and above 0, close to 0, and in between. The matrix is the identity, so the
    # activation gets exactly these.
    x = np.linspace(-30, 30, rows * columns, dtype=np.float32).reshape(rows, columns)
    x[0, 0], x[1, 0] = 1e-20, -1e-20
    panels = pack(np.eye(columns, dtype=np.float32), np.dtype(np.float32))
    found = compiled(lambda x, values: kernels.linear(x, values, panels.shape, activation=kind))(
        x, panels.values
    )
    # Relative to the result, however small it is.
    np.testing.assert_allclose(found, activation(x, kind), rtol=3e-5, atol=1e-30)


@pytest.mark.parametrize("kind", kernels.Activation)
def test_activations_pass_on_nan(kind: kernels.Activation) -> None:
    x = np.asarray([[np.nan], [np.inf], [1.0]], np.float32)
    panels = pack(np.ones((1, 1), np.float32), np.dtype(np.float32))
    multiply = compiled(lambda x, values: kernels.linear(x, values, panels.shape, activation=kind))
    assert [*map(float, multiply(x, panels.values)[:2, 0])] == [
        pytest.approx(np.nan, nan_ok=True),
        np.inf,
    ]


def test_concurrent_graphs_do_not_disturb_each_other() -> None:
    rng = np.random.default_rng(0)
    panels = pack(rng.standard_normal((300, 500), np.float32), np.dtype(np.float32))
    multiply = compiled(lambda x, values: kernels.linear(x, values, panels.shape))
    inputs = [tf.constant(rng.standard_normal((rows, 300), np.float32)) for rows in (1, 5, 13, 40)]
    values = tf.constant(panels.values)
    alone = [multiply(x, values).numpy() for x in inputs]

    def repeat(x: tf.Tensor) -> list[np.ndarray]:
        return [multiply(x, values).numpy() for _ in range(50)]

    with ThreadPoolExecutor(len(inputs)) as threads:
        for found, expected in zip(threads.map(repeat, inputs), alone, strict=True):
            for product in found:
                np.testing.assert_array_equal(product, expected)


@pytest.mark.parametrize("dtype", TYPES)
def test_nan_stays_in_its_row(dtype: tf.DType) -> None:
    x = np.ones((5, 40), np.float32)
    x[1, 7], x[3, 39] = np.nan, np.inf
    panels = pack(np.ones((40, 35), np.float32), np.dtype(dtype.as_numpy_dtype))
    multiply = compiled(lambda x, values: kernels.linear(x, values, panels.shape))
    product = multiply(x, panels.values).numpy()
    assert np.isnan(product[1]).all()
    assert not np.isfinite(product[3]).any()
    assert np.isfinite(product[[0, 2, 4]]).all()


@pytest.mark.parametrize("dtype", [tf.int8, INT4])
def test_with_whole_numbers_rows_are_rounded_by_groups(dtype: tf.DType) -> None:
    rng = np.random.default_rng(0)
    inputs, columns = 3 * GROUP - 50, 37
    x = rng.standard_normal((9, inputs), np.float32)
    # An outlier enlarges the steps of its own group only.
    x[:, GROUP + 3] = 1000
    matrix = rng.standard_normal((inputs, columns), np.float32)
    panels = pack(matrix, np.dtype(dtype.as_numpy_dtype))
    scales = None if panels.scales is None else tf.constant(panels.scales)
    multiply = compiled(lambda x, values: kernels.linear(x, values, panels.shape, scales=scales))
    error = np.abs(multiply(x, panels.values) - x @ unpack(panels))
    half_steps = np.zeros_like(x)
    for start in range(0, inputs, GROUP):
        group = x[:, start : start + GROUP]
        half_steps[:, start : start + GROUP] = np.abs(group).max(axis=1, keepdims=True) / 254
    assert np.all(error <= 1.001 * half_steps @ np.abs(unpack(panels)))
    assert error.any()


def test_with_bfloat16_rows_are_rounded_to_the_nearest() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((9, 301), np.float32)
    panels = pack(rng.standard_normal((301, 37), np.float32), np.dtype(tf.bfloat16.as_numpy_dtype))
    multiply = compiled(lambda x, values: kernels.linear(x, values, panels.shape))
    rounded = tf.cast(tf.cast(x, tf.bfloat16), tf.float32)
    np.testing.assert_array_equal(multiply(x, panels.values), multiply(rounded, panels.values))


# Embeddings have eight bits or more.
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.int8])
def test_embeddings_are_looked_up_in_packed_weights(dtype: tf.DType) -> None:
    table = np.random.default_rng(0).standard_normal((43, 20), np.float32)
    panels = pack(table.T, np.dtype(dtype.as_numpy_dtype))
    scales = None if panels.scales is None else tf.constant(panels.scales)
    ids = np.asarray([0, 42, 15, 16, 42], np.int32)
    found = compiled(lambda ids, values: kernels.look_up(ids, values, panels.shape, scales=scales))(
        ids, panels.values
    )
    np.testing.assert_array_equal(found, unpack(panels).T[ids])


def test_the_error_of_int8_is_bounded_by_its_steps() -> None:
    matrix = np.random.default_rng(0).standard_normal((50, 30), np.float32)
    matrix[:, 3] = 0
    panels = pack(matrix, np.dtype(np.int8))
    assert panels.scales is not None
    assert np.all(np.abs(unpack(panels) - matrix) <= 0.5001 * panels.scales)


def test_the_error_of_int4_is_bounded_by_its_steps() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((2 * SCALED + 5, 30), np.float32)
    matrix[:, 3] = 0
    # An outlier enlarges the steps of its own group only; of either sign, it is kept.
    matrix[SCALED + 3, :2] = 1000, -1000
    found = unpack(pack(matrix, np.dtype(INT4.as_numpy_dtype)))
    for start in range(0, len(matrix), SCALED):
        group, held = matrix[start : start + SCALED], found[start : start + SCALED]
        peak = np.abs(group).max(axis=0)
        # A scale has 8 significant bits. One side of zero has 8 of the 16 steps and the other 7: a
        # number as large as the peak on the other side is off by a whole step.
        assert np.all(np.abs(held - group) <= 1.01 / 8 * peak)
        is_inner = np.abs(group) < 0.93 * peak
        assert np.all(np.abs(held - group)[is_inner] <= (1.01 / 16 * peak + 0 * group)[is_inner])
    np.testing.assert_allclose(found[SCALED + 3, :2], [1000, -1000], rtol=1 / 256)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_matrix_of_a_stack_is_multiplied_by_like_any_other(dtype: tf.DType) -> None:
    rng = np.random.default_rng(0)
    matrices = rng.standard_normal((3, 97, 43), np.float32)
    stack = Panels.empty((97, 43), np.dtype(dtype.as_numpy_dtype), layers=3)
    for layer, matrix in enumerate(matrices):
        stack.layer(layer).fill(matrix)
    x = tf.constant(rng.standard_normal((5, 97), np.float32))

    @compiled
    def of_stack(layer: tf.Tensor) -> tf.Tensor:
        scales = None if stack.scales is None else tf.gather(stack.scales, layer)
        return kernels.linear(x, tf.constant(stack.values), stack.shape, layer=layer, scales=scales)

    def alone(matrix: np.ndarray) -> tf.Tensor:
        panels = pack(matrix, np.dtype(dtype.as_numpy_dtype))
        scales = None if panels.scales is None else tf.constant(panels.scales)
        values = tf.constant(panels.values)
        return compiled(lambda: kernels.linear(x, values, panels.shape, scales=scales))()

    for layer, matrix in enumerate(matrices):
        np.testing.assert_array_equal(of_stack(tf.constant(layer)), alone(matrix))

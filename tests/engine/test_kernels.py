"""The native kernels compute the same as XLA, which replaces them where they cannot be used."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import structlog
import tensorflow as tf

from harness.engine import GOLDENS, Bench, Golden, assert_equals, few_rungs
from shaperouter_service import kernels
from shaperouter_service.errors import StartupError
from shaperouter_service.kernels import KernelsUnavailableError, Panels, library, pack, selection
from shaperouter_service.kernels.library import DIGEST_SUFFIX, LIBRARY, digest, register
from shaperouter_service.kernels.panels import GROUP
from shaperouter_service.kernels.selfcheck import (
    activation,
    attention,
    require,
    unpack,
    whole_bytes,
)
from shaperouter_service.models import layers, load_model

MOST_ROWS = 70
TYPES = (tf.float32, tf.bfloat16, tf.int8)


@pytest.fixture(scope="module", autouse=True)
def _there_are_kernels() -> None:
    try:
        require()
    except KernelsUnavailableError as error:
        # With a compiler, they must be there.
        if shutil.which("c++") is None:
            pytest.skip(f"no C++ compiler, so no kernels: {error}")
        raise


def compiled(function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    return tf.function(function, jit_compile=True, autograph=False)


# One of one, less than a panel, whole panels, odd ones, and more inputs than are taken at a time.
@pytest.mark.parametrize(("inputs", "columns"), [(1, 1), (7, 5), (64, 48), (97, 131), (600, 33)])
@pytest.mark.parametrize("dtype", TYPES)
def test_products_equal_the_reference_for_any_number_of_rows(
    inputs: int, columns: int, dtype: tf.DType
) -> None:
    rng = np.random.default_rng(0)
    if dtype == tf.int8:
        x = whole_bytes(rng, MOST_ROWS, inputs)
    else:
        x = rng.standard_normal((MOST_ROWS, inputs), np.float32)
    matrix = rng.standard_normal((inputs, columns), np.float32)
    bias = rng.standard_normal(columns, np.float32)
    panels = pack(matrix, np.dtype(dtype.as_numpy_dtype))
    scales = None if panels.scales is None else tf.constant(panels.scales)

    @compiled
    def products(x: tf.Tensor, values: tf.Tensor) -> list[tf.Tensor]:
        return [
            kernels.linear(x[:rows], values, panels.shape, scales=scales, bias=tf.constant(bias))
            for rows in range(1, MOST_ROWS + 1)
        ]

    found = products(x, panels.values)
    held = unpack(panels).astype(np.float64)
    expected = x.astype(np.float64) @ held + bias
    # Relative to what is summed, not to a sum that may be next to nothing.
    size = np.abs(x).astype(np.float64) @ np.abs(held) + np.abs(bias)
    for rows, product in enumerate(found, 1):
        assert np.all(np.abs(product - expected[:rows]) <= 1e-5 * size[:rows]), rows
        # To the last bit: a row does not know what other rows there are.
        np.testing.assert_array_equal(product, found[-1][:rows])


# Less than a vector, a panel, and more, that are no multiple of either.
@pytest.mark.parametrize("columns", [3, 16, 83])
@pytest.mark.parametrize("kind", kernels.Activation)
def test_activations_equal_the_reference(kind: kernels.Activation, columns: int) -> None:
    rows = 29
    # All that they see: far below and above, next to nothing, and in between. What is multiplied is
    # one input by one.
    x = np.linspace(-30, 30, rows * columns, dtype=np.float32).reshape(rows, columns)
    x[0, 0], x[1, 0] = 1e-20, -1e-20
    panels = pack(np.eye(columns, dtype=np.float32), np.dtype(np.float32))
    found = compiled(lambda x, values: kernels.linear(x, values, panels.shape, activation=kind))(
        x, panels.values
    )
    # Of what they return, however small.
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


def test_with_int8_rows_are_rounded_by_groups() -> None:
    rng = np.random.default_rng(0)
    inputs, columns = 3 * GROUP - 50, 37
    x = rng.standard_normal((9, inputs), np.float32)
    # An outlier makes the steps of its own group large, and no others.
    x[:, GROUP + 3] = 1000
    panels = pack(rng.standard_normal((inputs, columns), np.float32), np.dtype(np.int8))
    scales = tf.constant(panels.scales)
    multiply = compiled(lambda x, values: kernels.linear(x, values, panels.shape, scales=scales))
    error = np.abs(multiply(x, panels.values) - x @ unpack(panels))
    half_steps = np.zeros_like(x)
    for start in range(0, inputs, GROUP):
        group = x[:, start : start + GROUP]
        half_steps[:, start : start + GROUP] = np.abs(group).max(axis=1, keepdims=True) / 254
    assert np.all(error <= 1.001 * half_steps @ np.abs(unpack(panels)))
    assert error.any()


@pytest.mark.parametrize("dtype", TYPES)
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


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    for path in (LIBRARY, Path(f"{LIBRARY}{DIGEST_SUFFIX}")):
        shutil.copy(path, tmp_path)
    return tmp_path / LIBRARY.name


def test_a_missing_library_is_not_used(copied: Path) -> None:
    copied.unlink()
    with pytest.raises(KernelsUnavailableError, match="is missing"):
        register(copied)


@pytest.mark.parametrize("damage", [lambda content: content[:1000], lambda content: content + b"x"])
def test_a_damaged_library_is_not_loaded(copied: Path, damage: Callable[[bytes], bytes]) -> None:
    copied.write_bytes(damage(copied.read_bytes()))
    with pytest.raises(KernelsUnavailableError, match="is damaged"):
        register(copied)


def test_a_file_that_is_no_library_is_not_used(copied: Path) -> None:
    copied.write_bytes(b"nothing")
    Path(f"{copied}{DIGEST_SUFFIX}").write_text(digest(copied), encoding="ascii")
    with pytest.raises(KernelsUnavailableError, match="can't be loaded"):
        register(copied)


def test_a_library_of_another_version_is_not_used(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "VERSION", library.VERSION + 1)
    with pytest.raises(KernelsUnavailableError, match=f"has version {library.VERSION - 1}"):
        register(copied)


def test_kernels_with_wrong_products_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "shaperouter_service.kernels.selfcheck.unpack", lambda panels: 1 + unpack(panels)
    )
    require.cache_clear()
    with pytest.raises(KernelsUnavailableError, match="differs from the reference"):
        require()


def test_kernels_with_wrong_attention_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "shaperouter_service.kernels.selfcheck.attention", lambda *tensors: 1 + attention(*tensors)
    )
    require.cache_clear()
    with pytest.raises(KernelsUnavailableError, match="attention"):
        require()


def test_without_kernels_the_log_says_what_is_lost_and_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> str:
        raise KernelsUnavailableError("it was not built")

    monkeypatch.setattr(selection, "require", refuse)
    with structlog.testing.capture_logs() as lines:
        assert kernels.choose("auto") is None
    (line,) = lines
    assert line["why"] == "it was not built"
    assert "int8" in line["lost"]
    assert "g++" in line["remedy"]


def test_kernels_that_are_off_log_nothing() -> None:
    with structlog.testing.capture_logs() as lines:
        assert kernels.choose("off") is None
    assert not lines


ATTENTIONS = {
    # R, H, Q, T, D: a step, hypotheses, a prompt; sizes that no vector divides.
    "step": (3, 2, 1, 70, 64),
    "beams": (2, 3, 9, 45, 16),
    "odd": (2, 1, 4, 31, 13),
    "prompt": (1, 2, 37, 64, 40),
}


def attention_case(name: str) -> tuple[list[np.ndarray], np.ndarray]:
    """Query, keys, values and ends: some positions of each row, all, and more than all."""
    rows, heads, queries, places, size = ATTENTIONS[name]
    rng = np.random.default_rng(0)
    tensors = [
        rng.standard_normal((rows, heads, count, size), np.float32)
        for count in (queries, places, places)
    ]
    return tensors, np.asarray([places - 5, places, places + 9][:rows], np.int32)


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


def test_attention_depends_neither_on_cache_length_nor_on_other_rows() -> None:
    (query, keys, values), _ = attention_case("step")
    ends = tf.constant([20, 33, 70])

    def attend(rows: slice, places: int) -> np.ndarray:
        found = compiled(lambda *tensors: kernels.attend(*tensors, ends[rows], 1.0))(
            query[rows], keys[rows, :, :places], values[rows, :, :places]
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
    # From equal ones to ones beside which the others are nothing.
    places = 64
    values = np.eye(places, dtype=np.float32)[np.newaxis, np.newaxis]
    for spread in (0.0, 1.0, 30.0, 86.0, 200.0, 1e4):
        keys = np.zeros((1, 1, places, places), np.float32)
        keys[..., 0] = np.linspace(-spread, 0, places)
        query = np.zeros((1, 1, 1, places), np.float32)
        query[..., 0] = 1
        attend = compiled(lambda *tensors: kernels.attend(*tensors, tf.constant([places]), 1.0))
        found = attend(query, keys, values).numpy()[0, 0, 0].astype(np.float64)
        exact = np.exp(keys[0, 0, :, 0].astype(np.float64))
        np.testing.assert_allclose(found, exact / exact.sum(), rtol=2e-6, atol=1e-37)


@pytest.mark.parametrize("fault", ["is missing", "is damaged", "has version"])
def test_an_engine_serves_without_a_usable_library(
    copied: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "is missing":
        copied.unlink()
    elif fault == "is damaged":
        copied.write_bytes(copied.read_bytes()[:-1])
    else:
        monkeypatch.setattr(library, "VERSION", library.VERSION + 1)
    monkeypatch.setattr("shaperouter_service.kernels.selfcheck.register", lambda: register(copied))
    require.cache_clear()
    golden = Golden.read("gpt2-untied")
    with structlog.testing.capture_logs() as lines:
        bench = Bench({golden.name: golden.directory}, slots=2, ladders=few_rungs)
    assert_equals(bench.submit_case(golden, golden.cases[0]), golden.cases[0])
    assert bench.engine.model(golden.name).kernels == ""
    (told,) = (line for line in lines if line["event"].startswith("no native kernels"))
    assert fault in told["why"]


# One of each family; all other tests run with the kernels.
@pytest.mark.parametrize("name", ["gpt2-untied", "opt-pre", "t5-gated"])
def test_answers_equal_the_reference_without_kernels(name: str) -> None:
    golden = Golden.read(name)
    bench = Bench({name: golden.directory}, slots=2, ladders=few_rungs, kernels="off")
    assert bench.engine.model(name).kernels == ""
    runs = [(bench.submit_case(golden, case), case) for case in golden.cases[:4]]
    for run, case in runs:
        assert_equals(run, case)


@pytest.mark.parametrize("name", ["gpt2-untied", "t5-gated"])
@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_weights_of_fewer_bits_are_served_and_reported(name: str, dtype: str) -> None:
    golden = Golden.read(name)
    bench = Bench({name: golden.directory}, slots=2, ladders=few_rungs, dtype=dtype)
    run = bench.submit_case(golden, golden.cases[0])
    run.wait()
    message = bench.engine.model(name)
    assert (message.weight_dtype, message.dtype) == (dtype, "float32")
    assert message.kernels == require()
    full = load_model(name, golden.directory, "float32", packed=True)
    assert message.weight_bytes < full.weight_bytes
    assert message.parameters == full.parameters


def test_int8_without_kernels_is_refused_with_the_reason() -> None:
    with pytest.raises(StartupError, match="dtype int8 needs a CPU with the native kernels"):
        Bench({"m": GOLDENS / "gpt2-bare"}, dtype="int8", kernels="off")

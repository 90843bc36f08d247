"""What the native kernels compute for each row by itself gives the results of XLA."""

import numpy as np
import pytest
import tensorflow as tf

from harness.kernels import compiled
from shaperouter_service import kernels
from shaperouter_service.decoding.softmax import Softmax
from shaperouter_service.models import DeviceKind, Weights, layers

pytestmark = pytest.mark.usefixtures("native_kernels")

WIDTHS = [1, 36, 97, 384]
EPSILON = 1e-3


def weights(**values: np.ndarray) -> Weights:
    """Weights of a norm `n`, which XLA computes."""
    tensors = {f"n.{name}": tf.constant(value) for name, value in values.items()}
    return Weights(tensors, DeviceKind.CPU)


@pytest.mark.parametrize("width", WIDTHS)
def test_norms_of_sums_equal_those_of_xla(width: int) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 23, width), np.float32)
    gain, bias = rng.standard_normal((2, width), np.float32)
    expected = layers.layer_norm(weights(weight=gain, bias=bias), "n", tf.constant(x + y), EPSILON)

    @compiled
    def norm(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return kernels.norm(x, tf.constant(gain), tf.constant(bias), EPSILON, added=y)

    np.testing.assert_allclose(norm(x, y), expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("centered", [False, True], ids=["RMS", "layer"])
def test_norms_equal_those_of_xla(width: int, centered: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((23, width), np.float32) + 1
    gain = rng.standard_normal(width, np.float32)
    reference = layers.layer_norm if centered else layers.rms_norm
    expected = reference(weights(weight=gain), "n", tf.constant(x), EPSILON)

    @compiled
    def norm(x: tf.Tensor) -> tf.Tensor:
        return kernels.norm(x, tf.constant(gain), None, EPSILON, centered=centered)

    np.testing.assert_allclose(norm(x), expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("count", [0, 1, 13, 40])
def test_only_as_many_rows_as_count_are_normalized(count: int) -> None:
    x = np.random.default_rng(0).standard_normal((29, 50), np.float32)

    @compiled
    def norm(x: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        return kernels.norm(x, None, None, EPSILON, count=count)

    found = norm(x, np.asarray([count], np.int32))[:count]
    whole = compiled(lambda x: kernels.norm(x, None, None, EPSILON))(x)
    np.testing.assert_array_equal(found, whole[:count])


@pytest.mark.parametrize("kind", ["layer norm", "RMS norm", "softmax"])
def test_a_row_has_the_same_bits_among_many(kind: str) -> None:
    # More than one thread computes alone.
    x = np.random.default_rng(0).standard_normal((97, 768), np.float32)

    @compiled
    def compute(x: tf.Tensor) -> tf.Tensor:
        if kind == "softmax":
            return kernels.softmax_sums(x)
        return kernels.norm(x, None, None, EPSILON, centered=kind == "layer norm")

    found = compute(x).numpy()
    for row in (0, 48, 96):
        np.testing.assert_array_equal(compute(x[row : row + 1])[0], found[row])


def test_norms_of_tokens_compute_the_needed_rows_and_norms_of_heads_all() -> None:
    rng = np.random.default_rng(0)
    tokens, heads = rng.standard_normal((4, 1, 8)), rng.standard_normal((4, 3, 1, 8))
    gain = tf.constant(rng.standard_normal(8), tf.float32)
    # Any packed matrix makes the kernels compute.
    packed = Weights({"n.weight": gain}, DeviceKind.CPU, {"m.weight": (8, 8)})
    plain = weights(weight=gain.numpy())

    @compiled
    def compute(tokens: tf.Tensor, heads: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        needed = packed.for_rows(tf.constant([2]))
        of_heads = layers.rms_norm(needed, "n", heads, EPSILON, of_heads=True)
        return layers.rms_norm(needed, "n", tokens, EPSILON), of_heads

    values = [tf.constant(each, tf.float32) for each in (tokens, heads)]
    found = compute(*values)
    expected = [layers.rms_norm(plain, "n", each, EPSILON) for each in values]
    np.testing.assert_allclose(found[0][:2], expected[0][:2], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1, 7, 300, 50_257])
def test_softmax_is_exact_over_a_vocabulary(is_native: bool, size: int) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(loc=-20, scale=5, size=[2, 3, size]).astype(np.float32)
    # Tokens that are ruled out.
    logits[..., 1:][rng.random([2, 3, size - 1]) < 0.2] = -np.inf

    def compute(logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        softmax = Softmax.of(logits, is_native=is_native)
        return softmax.logprobs(logits), softmax.entropy

    found = tf.function(compute, jit_compile=True)(logits)
    exact = logits.astype(np.float64)
    logprobs = exact - np.logaddexp.reduce(exact, axis=-1, keepdims=True)
    possible = np.where(np.isfinite(logprobs), logprobs, 0)
    entropy = -(np.exp(logprobs) * possible).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(found[0], logprobs, rtol=1e-6, atol=3e-6)
    np.testing.assert_allclose(found[1], entropy, rtol=1e-6, atol=3e-5)

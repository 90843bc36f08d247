"""Layers give the same results on every kind of device."""

import numpy as np
import pytest
import tensorflow as tf

from shaperouter_service.models import DeviceKind, Weights
from shaperouter_service.models.layers import layer_norm, linear, rms_norm

# XLA computes sums over this many numbers in another way.
MANY = 2**15


@pytest.mark.parametrize("rows", [1, 2, 16, 17])
# One block, several of the longest, several of a shorter one, and a width that nothing divides.
@pytest.mark.parametrize("inputs", [48, 144, 64, 97])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_products_on_a_cpu_equal_those_on_a_gpu(rows: int, inputs: int, dtype: tf.DType) -> None:
    rng = np.random.default_rng(0)

    def tensor(*shape: int) -> tf.Tensor:
        return tf.constant(rng.normal(size=shape), dtype)

    weights = {"layer.weight": tensor(inputs, 24), "layer.bias": tensor(24)}
    x = tensor(rows, inputs)
    cpu, gpu = (
        tf.cast(linear(Weights(weights, device), "layer", x), tf.float32) for device in DeviceKind
    )
    np.testing.assert_allclose(cpu, gpu, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("width", [256, 768, 8192, 50257])
@pytest.mark.parametrize("layer", ["layer norm", "rms norm", "softmax", "log-softmax"])
def test_a_row_has_the_same_bits_for_any_number_of_rows(width: int, layer: str) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=[MANY // width + 3, width]).astype(np.float32)
    gain = tf.constant(rng.normal(size=width), tf.float32)
    weights = Weights({"norm.weight": gain, "norm.bias": gain}, DeviceKind.CPU)
    compute = {
        "layer norm": lambda x: layer_norm(weights, "norm", x, 1e-5),
        "rms norm": lambda x: rms_norm(weights, "norm", x, 1e-6),
        "softmax": tf.nn.softmax,
        "log-softmax": tf.nn.log_softmax,
    }[layer]
    one, all_ = (
        tf.function(compute, jit_compile=True)(tf.constant(some)) for some in (rows[:1], rows)
    )
    np.testing.assert_array_equal(all_[:1], one)

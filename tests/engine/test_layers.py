"""Layers give the same whatever way a device has them computed."""

import numpy as np
import pytest
import tensorflow as tf

from shaperouter_service.models import DeviceKind, Weights
from shaperouter_service.models.layers import linear


@pytest.mark.parametrize("rows", [1, 2, 16, 17])
# One block, several of the longest, several of a shorter one, and a width that nothing divides.
@pytest.mark.parametrize("inputs", [48, 144, 64, 97])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_products_on_a_cpu_are_those_on_a_gpu(rows: int, inputs: int, dtype: tf.DType) -> None:
    rng = np.random.default_rng(0)

    def tensor(*shape: int) -> tf.Tensor:
        return tf.constant(rng.normal(size=shape), dtype)

    weights = {"layer.weight": tensor(inputs, 24), "layer.bias": tensor(24)}
    x = tensor(rows, inputs)
    cpu, gpu = (
        tf.cast(linear(Weights(weights, device), "layer", x), tf.float32) for device in DeviceKind
    )
    np.testing.assert_allclose(cpu, gpu, rtol=1e-4, atol=1e-4)

"""The counter-based generator is Threefry-2x32-20 as published, with and without the kernels."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from shaperouter_service.decoding.randomness import gumbel, perturb, threefry2x32

# Known answers of Random123's kat_vectors for threefry2x32 with 20 rounds: counter, key, result.
KNOWN_ANSWERS = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_known_answers(
    counter: tuple[int, int], key: tuple[int, int], answer: tuple[int, int]
) -> None:
    found = threefry2x32(
        key=(tf.constant(key[0], tf.uint32), tf.constant(key[1], tf.uint32)),
        counter=(tf.constant(counter[0], tf.uint32), tf.constant(counter[1], tf.uint32)),
    )
    assert tuple(int(word) for word in found) == answer


def test_gumbel_noise_is_finite_and_has_the_mean_and_spread_of_its_distribution() -> None:
    rows, vocab_size = 64, 4096
    seed = tf.constant(np.arange(2 * rows, dtype=np.uint32).reshape(rows, 2))
    noise = gumbel(seed, tf.range(rows), vocab_size).numpy()
    assert np.isfinite(noise).all()
    # Euler's constant and pi^2 / 6; four standard errors at this size.
    assert abs(noise.mean() - 0.5772) < 0.01
    assert abs(noise.var() - np.pi**2 / 6) < 0.03


@pytest.mark.usefixtures("native_kernels")
@pytest.mark.parametrize("vocab_size", [1, 50, 9001])
def test_kernels_add_the_same_noise(vocab_size: int) -> None:
    rows = 5
    rng = np.random.default_rng(0)
    scores = tf.constant(rng.normal(size=[rows, vocab_size]), tf.float32)
    seed = tf.constant(rng.integers(2**32, size=[rows, 2], dtype=np.uint32))
    positions = tf.constant([0, 1, 77, 3, 2**20])
    applies = tf.constant([True, False, True, True, True])
    found, expected = (
        tf.function(functools.partial(perturb, is_native=is_native), jit_compile=True)(
            scores, seed, positions, applies
        ).numpy()
        for is_native in (True, False)
    )
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)
    np.testing.assert_array_equal(found[1], scores[1])

"""The forward pass gives the reference's probabilities, and sampling draws from them."""

import numpy as np
import tensorflow as tf

from harness.engine import Golden
from shaperouter_service.decoding.options import SlotOptions
from shaperouter_service.decoding.prefill import PromptAttention
from shaperouter_service.decoding.sampling import choose_tokens
from shaperouter_service.models import load_model

DRAWS = 20_000
# Of the chi-square distribution: a right sampler fails a check once in ten thousand seeds, and the
# seeds are fixed.
P_VALUE_FLOOR = 1e-4


def test_probabilities_equal_the_reference(tiny: Golden) -> None:
    model = load_model(tiny.name, tiny.directory)
    for case in tiny.probabilities:
        prompt = tf.constant([case["prompt_token_ids"]])
        length = prompt.shape[1]
        attend = PromptAttention(length, model.family.layers)
        hidden = model.family.forward(model.weights, prompt, tf.range(length)[None], attend)
        logits = model.family.logits(model.weights, hidden[:, -1])
        found = tf.nn.softmax(logits / case["temperature"])[0].numpy()
        np.testing.assert_allclose(found, case["probabilities"], atol=1e-5)


def test_sampled_tokens_are_distributed_as_the_reference_says(tiny: Golden) -> None:
    for case in tiny.probabilities:
        # The reference's probabilities at this temperature, as logits for temperature 1.
        probabilities = np.maximum(np.array(case["probabilities"]), 1e-12)
        counts = np.bincount(
            _draw(np.log(probabilities), temperature=1.0), minlength=len(probabilities)
        )
        assert _p_value(counts, probabilities) > P_VALUE_FLOOR


def test_temperature_sharpens_as_the_reference_says(tiny: Golden) -> None:
    by_temperature = {}
    for case in tiny.probabilities:
        by_temperature.setdefault(tuple(case["prompt_token_ids"]), {})[case["temperature"]] = (
            np.maximum(np.array(case["probabilities"]), 1e-12)
        )
    for cases in by_temperature.values():
        drawn = _draw(np.log(cases[1.0]), temperature=0.7)
        counts = np.bincount(drawn, minlength=len(cases[1.0]))
        assert _p_value(counts, cases[0.7]) > P_VALUE_FLOOR


def test_a_token_depends_on_its_seed_and_position_and_not_on_the_row(tiny: Golden) -> None:
    logits = np.log(np.maximum(np.array(tiny.probabilities[0]["probabilities"]), 1e-12))
    together = _draw(logits, temperature=1.0, seeds=range(64))
    alone = [_draw(logits, temperature=1.0, seeds=[seed])[0] for seed in range(64)]
    backwards = _draw(logits, temperature=1.0, seeds=range(63, -1, -1))
    assert together.tolist() == alone == backwards[::-1].tolist()
    elsewhere = _draw(logits, temperature=1.0, seeds=range(64), position=6)
    assert elsewhere.tolist() != alone


def test_rows_that_do_not_sample_take_the_likeliest_token_beside_rows_that_do(
    tiny: Golden,
) -> None:
    logits = np.log(np.maximum(np.array(tiny.probabilities[0]["probabilities"]), 1e-12))
    tokens = _draw(logits, temperature=1.0, seeds=range(64), do_sample=[s % 2 for s in range(64)])
    assert set(tokens[::2]) == {int(np.argmax(logits))}
    assert len(set(tokens[1::2])) > 1


def _draw(logits, *, temperature, seeds=range(DRAWS), position=5, do_sample=None):
    rows = len(seeds)
    seeds = np.array(seeds, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    options = SlotOptions(
        max_new_tokens=tf.ones([rows], tf.int32),
        do_sample=tf.cast(np.ones(rows) if do_sample is None else do_sample, tf.bool),
        temperature=tf.fill([rows], tf.constant(temperature, tf.float32)),
        seed=tf.constant(
            np.stack([seeds & np.uint64(0xFFFFFFFF), seeds >> np.uint64(32)], 1).astype(np.uint32)
        ),
        eos_token_ids=tf.zeros([rows, 8], tf.int32),
    )
    batch = tf.tile(tf.constant(logits, tf.float32)[None], [rows, 1])
    positions = tf.fill([rows], position)
    return choose_tokens(batch, options, positions, tf.ones([rows], tf.bool)).numpy()


def _p_value(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """Chi-square goodness of fit, with rare tokens put together; Wilson and Hilferty's tail."""
    expected = probabilities / probabilities.sum() * counts.sum()
    common = expected >= 5
    observed = np.append(counts[common], counts[~common].sum())
    expected = np.append(expected[common], expected[~common].sum())
    observed, expected = observed[expected > 0], expected[expected > 0]
    freedom = len(expected) - 1
    statistic = ((observed - expected) ** 2 / expected).sum()
    z = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / (2 / (9 * freedom)) ** 0.5
    return float(0.5 * tf.math.erfc(z / 2**0.5).numpy())

"""The forward pass gives the reference's probabilities."""

import numpy as np
import tensorflow as tf

from harness.engine import Golden, empty_caches, last_logits, source_attention
from shaperouter_service.decoding.attention import PromptAttention
from shaperouter_service.models import load_model


def test_probabilities_equal_the_reference(tiny: Golden) -> None:
    model = load_model(tiny.name, tiny.directory, "float32")
    for case in tiny.probabilities:
        logits = last_logits(model, tf.constant([tiny.prompt(case)]), tiny.source(case))
        found = tf.nn.softmax(logits / case["temperature"])[0].numpy()
        np.testing.assert_allclose(found, case["probabilities"], atol=1e-5)


def test_a_prompt_read_in_pieces_gives_the_same_hidden_states(tiny: Golden) -> None:
    model = load_model(tiny.name, tiny.directory, "float32")
    family, length, piece = model.family, 22, 8
    prompt = tf.range(length)[tf.newaxis]
    source = source_attention(model, [5, 1, 44] if tiny.has_encoder else [])
    whole = PromptAttention(empty_caches(family, length), tf.constant(0), length, source)
    expected = family.forward(model.weights, prompt, tf.range(length)[tf.newaxis], whole)
    caches = empty_caches(family, length)
    # The last piece reads two tokens again.
    for start in (0, 8, length - piece):
        attend = PromptAttention(caches, tf.constant(start), piece, source)
        places = start + tf.range(piece)[tf.newaxis]
        hidden = family.forward(model.weights, tf.gather(prompt[0], places), places, attend)
        np.testing.assert_allclose(hidden, expected[:, start : start + piece], atol=1e-4, rtol=1e-4)
        caches = attend.caches
    for found, right in zip(caches, whole.caches, strict=True):
        np.testing.assert_allclose(found, right, atol=1e-4, rtol=1e-4)

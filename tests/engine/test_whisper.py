"""Whisper's encoder and decoder compute the same as the reference."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from harness.engine import encoded
from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.decoding.alignment import alignment_scores
from shaperouter_service.errors import StartupError
from shaperouter_service.models.config import Config
from shaperouter_service.models.weights import DeviceKind, Weights
from shaperouter_service.models.whisper import FRAMES_PER_POSITION, Whisper
from shaperouter_service.speech.audio.spectrum import HOP_SAMPLES, window_source

GOLDENS = Path(__file__).parents[1] / "goldens"
UNEVEN = "whisper-uneven"
# More than the vocabulary: nothing is left out of probabilities.
EVERYTHING = 1000


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A tiny checkpoint with the reference's results."""

    family: Whisper
    weights: Weights
    generation_config: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]

    @property
    def source(self) -> tf.Tensor:
        window = self.family.max_source_length * FRAMES_PER_POSITION * HOP_SAMPLES
        sound = self.arrays["sounds"][0].astype(np.float32) / 2**15
        made = window_source(sound, 0, window, peak=-np.inf, frames=window // HOP_SAMPLES)
        return tf.constant(made[np.newaxis])

    @property
    def alignment(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Scores and log-probabilities of the golden tokens."""
        source = whole_source(self.family, self.weights, self.source)
        tokens = tf.constant(self.arrays["token_ids"][np.newaxis])
        heads = [tuple(pair) for pair in self.generation_config["alignment_heads"]]
        return alignment_scores(
            self.family,
            self.weights,
            tokens,
            source=source,
            heads=heads,
            text_tokens=EVERYTHING,
        )


@pytest.fixture(scope="module", params=[UNEVEN, "whisper-english"])
def loaded(request: pytest.FixtureRequest) -> Loaded:
    directory = GOLDENS / str(request.param)
    checkpoint = Checkpoint(directory)
    family = Whisper.from_config(Config(directory / "config.json", checkpoint.config))
    tensors = family.read_weights(checkpoint, np.dtype(np.float32))
    assert checkpoint.generation_config is not None
    return Loaded(
        family=family,
        weights=Weights({name: tf.constant(array) for name, array in tensors}, DeviceKind.CPU),
        generation_config=checkpoint.generation_config,
        arrays=load_file(GOLDENS / f"{request.param}.arrays.safetensors"),
    )


def whole_source(family: Whisper, weights: Weights, source: tf.Tensor) -> list[tf.Tensor]:
    """The caches of a window."""
    return encoded(
        family, weights, source, tf.zeros([1], tf.int32), positions=family.max_source_length
    )


def test_a_source_has_the_static_shape(loaded: Loaded) -> None:
    spec = loaded.family.source_spec(1, loaded.family.max_source_length)
    assert spec.is_compatible_with(loaded.source)


def test_the_encoder_gives_the_references_hidden_states(loaded: Loaded) -> None:
    hidden = loaded.family.encode_source(loaded.weights, loaded.source, tf.zeros([1], tf.int32))
    np.testing.assert_allclose(hidden[0], loaded.arrays["encoded"], atol=1e-4, rtol=1e-4)


def test_the_decoder_gives_the_references_logprobs(loaded: Loaded) -> None:
    _, logprobs = loaded.alignment
    expected = tf.nn.log_softmax(loaded.arrays["logits"])
    following = loaded.arrays["token_ids"][1:]
    expected = tf.gather(expected[:-1], following, batch_dims=1)
    np.testing.assert_allclose(logprobs[0], expected, atol=1e-4, rtol=1e-4)


def test_alignment_has_the_references_attention_to_the_source(loaded: Loaded) -> None:
    scores, _ = loaded.alignment
    np.testing.assert_allclose(tf.nn.softmax(scores)[0], loaded.arrays["attentions"], atol=1e-5)


def test_the_weights_that_only_the_encoder_reads_are_known(loaded: Loaded) -> None:
    # Everything else taken away, the encoder still runs, and the decoder without those.
    of_encoder = {n: w for n, w in loaded.weights.items() if loaded.family.is_of_encoder(n)}
    source = whole_source(loaded.family, Weights(of_encoder, DeviceKind.CPU), loaded.source)
    rest = {n: w for n, w in loaded.weights.items() if n not in of_encoder}
    tokens = tf.constant(loaded.arrays["token_ids"][np.newaxis])
    _, logprobs = alignment_scores(
        loaded.family,
        Weights(rest, DeviceKind.CPU),
        tokens,
        source=source,
        heads=[(0, 0)],
        text_tokens=EVERYTHING,
    )
    np.testing.assert_array_equal(logprobs, loaded.alignment[1])


Dimensions = Callable[..., Whisper]


@pytest.fixture
def read() -> Dimensions:
    """Reads a tiny config.json with changes."""
    content = json.loads((GOLDENS / UNEVEN / "config.json").read_text())

    def read(**changes: object) -> Whisper:
        return Whisper.from_config(Config(Path("config.json"), content | changes))

    return read


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"decoder_attention_heads": 5},
            "d_model must be a multiple of decoder_attention_heads, got 24 and 5",
        ),
        ({"num_mel_bins": 201}, "num_mel_bins must be from 1 to 200, got 201"),
        ({"activation_function": "mish"}, "activation_function must be one of "),
    ],
)
def test_an_unusable_dimension_is_refused_by_name(
    read: Dimensions, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(StartupError, match=message):
        read(**changes)

"""Log-mel features equal those of Transformers' `WhisperFeatureExtractor`.

The reference is called here and not kept in golden files: it needs no PyTorch, and its results are
megabytes.
"""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from transformers import WhisperFeatureExtractor

from shaperouter_service.decoding.lowering import portable
from shaperouter_service.models.whisper_features import features, log_mel
from shaperouter_service.speech.audio.spectrum import (
    HOP_SAMPLES,
    SAMPLE_RATE,
    SAMPLES_AFTER,
    SAMPLES_BEFORE,
    cut_window,
    peak_log_power,
)

TOLERANCE = 1e-4
FRAMES = 3000
WINDOW_SAMPLES = FRAMES * HOP_SAMPLES
INPUT_SAMPLES = SAMPLES_BEFORE + WINDOW_SAMPLES + SAMPLES_AFTER
UNKNOWN = -np.inf

SECONDS = np.arange(WINDOW_SAMPLES) / SAMPLE_RATE
RANDOM = np.random.default_rng(0)
NOISE = RANDOM.standard_normal(WINDOW_SAMPLES)

# Loud and quiet at once is what single precision is worst at.
SIGNALS = {
    "silence": np.zeros(WINDOW_SAMPLES),
    "noise": 0.1 * NOISE,
    "hardly anything": 1e-5 * NOISE,
    "a tone": np.sin(2 * np.pi * 300 * SECONDS),
    "a tone in faint noise": 0.5 * np.sin(2 * np.pi * 440 * SECONDS) + 1e-4 * NOISE,
    "a rising tone": np.sin(2 * np.pi * (50 + 120 * SECONDS) * SECONDS),
    "a square wave": np.sign(np.sin(2 * np.pi * 200.5 * SECONDS)),
    "clicks": (np.arange(WINDOW_SAMPLES) % 7919 == 0).astype(float),
    "less than a window": 0.1 * NOISE[:1000],
    "one sample": np.ones(1),
}

Compute = Callable[[np.ndarray, float, int], np.ndarray]


@pytest.fixture(scope="module", params=[80, 128])
def bands(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def compute(bands: int) -> Compute:
    """The features [M, F] of a window, as in a compiled graph."""

    @tf.function(
        jit_compile=True,
        autograph=False,
        input_signature=[
            tf.TensorSpec([1, INPUT_SAMPLES], tf.float32),
            tf.TensorSpec([1], tf.float32),
            tf.TensorSpec([1], tf.int32),
        ],
    )
    def compiled(samples: tf.Tensor, peak: tf.Tensor, frames: tf.Tensor) -> tf.Tensor:
        return features(log_mel(samples, bands), peak, frames)

    def compute(samples: np.ndarray, peak: float, frames: int) -> np.ndarray:
        result = compiled(
            tf.constant(samples[np.newaxis]),
            tf.constant([peak], tf.float32),
            tf.constant([frames]),
        )
        return result.numpy()[0].T

    return compute


def reference(recording: np.ndarray, bands: int, **options: object) -> np.ndarray:
    extractor = WhisperFeatureExtractor(feature_size=bands)
    made = extractor(recording, sampling_rate=SAMPLE_RATE, return_tensors="np", **options)
    return np.asarray(made.input_features[0])


@pytest.mark.parametrize("name", SIGNALS)
def test_a_recording_of_one_window(bands: int, compute: Compute, name: str) -> None:
    recording = SIGNALS[name].astype(np.float32)
    made = compute(cut_window(recording, 0, WINDOW_SAMPLES), UNKNOWN, FRAMES)
    assert np.abs(made - reference(recording, bands)).max() < TOLERANCE


@pytest.mark.parametrize("frame", [0, 1234, 3000, 4321], ids=lambda frame: f"from frame {frame}")
def test_a_window_of_a_longer_recording(bands: int, compute: Compute, frame: int) -> None:
    # Its middle is the loudest, and its length is no whole number of frames.
    recording = np.concatenate(
        [0.01 * NOISE[:300_000], SIGNALS["a tone in faint noise"][:200_000], 0.1 * NOISE[:300_077]]
    ).astype(np.float32)
    expected = reference(recording, bands, truncation=False, padding="longest")
    frames = min(FRAMES, expected.shape[1] - frame)
    window = cut_window(recording, frame * HOP_SAMPLES, WINDOW_SAMPLES)
    made = compute(window, peak_log_power(recording, bands), frames)
    assert np.abs(made[:, :frames] - expected[:, frame : frame + frames]).max() < TOLERANCE
    assert not made[:, frames:].any()


def test_rows_do_not_mix() -> None:
    recordings = [SIGNALS["noise"], SIGNALS["clicks"]]
    samples = np.stack(
        [cut_window(one.astype(np.float32), 0, WINDOW_SAMPLES) for one in recordings]
    )
    alone = [log_mel(tf.constant(row[np.newaxis]), 80).numpy()[0] for row in samples]
    assert np.allclose(log_mel(tf.constant(samples), 80), alone, atol=1e-6)


def test_the_features_are_a_small_module_of_stablehlo() -> None:
    function = tf.function(lambda samples: log_mel(samples, 80), jit_compile=True, autograph=False)
    samples = tf.zeros([1, INPUT_SAMPLES])
    module = portable(function.experimental_get_compiler_ir(samples)(stage="stablehlo"))
    assert "stablehlo.fft" in module
    # Filters and window are written out; the matrix of a Fourier transform would take megabytes.
    assert len(module) < 200_000

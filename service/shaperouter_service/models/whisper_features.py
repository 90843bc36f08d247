"""Whisper's input: log-mel spectrograms, as in Transformers' `WhisperFeatureExtractor`.

Letters of shapes: R rows, F frames of a window, M mel bands.
"""

from typing import Any

import numpy as np
import tensorflow as tf

# Samples a second.
SAMPLE_RATE = 16_000
# Of a Fourier transform: 25 ms.
FRAME_SAMPLES = 400
# From one frame to the next: 10 ms.
HOP_SAMPLES = 160
# F: a window of 30 s.
FRAMES = 3000
WINDOW_SAMPLES = FRAMES * HOP_SAMPLES

# A frame lies around its time, so the first begins before the window and the last ends behind it.
SAMPLES_BEFORE = FRAME_SAMPLES // 2
SAMPLES_BEHIND = FRAME_SAMPLES - HOP_SAMPLES - SAMPLES_BEFORE

# The least power, and how much less than the loudest a power may be: the rest is raised to it.
LEAST_POWER = 1e-10
RANGE = 8.0

# Slaney's mel scale: linear up to 1000 Hz, which are 15 mels, logarithmic above.
_LINEAR_HERTZ, _LINEAR_MELS = 1000.0, 15.0
_LOG_STEP = np.log(6.4) / 27


def log_mel(samples: tf.Tensor, bands: int) -> tf.Tensor:
    """Decimal logarithms of the power in each band, at each frame of a window.

    Args:
        samples: [R, SAMPLES_BEFORE + WINDOW_SAMPLES + SAMPLES_BEHIND] float32 at 16 kHz, from -1 to
            1: a window of 30 s with what lies around it in its recording; see `around`.
        bands: M.

    Returns:
        [R, F, M] float32.
    """
    rows = samples.shape[0]
    # Frames overlap, but all begin at multiples of a hop: of whole hops, they are put together.
    whole = (FRAME_SAMPLES - 1) // HOP_SAMPLES
    rest = FRAME_SAMPLES - whole * HOP_SAMPLES
    hops = tf.reshape(
        tf.pad(samples, [[0, 0], [0, HOP_SAMPLES - rest]]), [rows, FRAMES + whole, HOP_SAMPLES]
    )
    parts = [hops[:, start : start + FRAMES] for start in range(whole)]
    frames = tf.concat([*parts, hops[:, whole:, :rest]], axis=-1)  # [R, F, FRAME_SAMPLES]
    spectrum = tf.signal.rfft(frames * _hann(FRAME_SAMPLES))
    power = tf.square(tf.math.real(spectrum)) + tf.square(tf.math.imag(spectrum))
    bins = power.shape[-1]
    in_bands = tf.matmul(tf.reshape(power, [-1, bins]), mel_filters(bands).astype(np.float32))
    logarithms = tf.math.log(tf.maximum(in_bands, LEAST_POWER)) / np.log(10)
    return tf.reshape(logarithms, [rows, FRAMES, bands])


def features(log_power: tf.Tensor, loudest: tf.Tensor, frames: tf.Tensor) -> tf.Tensor:
    """What the encoder reads.

    Args:
        log_power: [R, F, M], of `log_mel`.
        loudest: [R] float32, the largest of the recording's logarithms as far as it is known
            outside of this window; minus infinity where nothing is.
        frames: [R] int32, how many of the window's frames are the recording's. Those behind are 0,
            as Transformers has it when a long recording ends; of a recording of one window, it
            takes silence, which is what all F frames of a window filled with zeros give.

    Returns:
        [R, F, M] float32.
    """
    there = (tf.range(FRAMES) < frames[:, tf.newaxis])[:, :, tf.newaxis]  # [R, F, 1]
    here = tf.reduce_max(tf.where(there, log_power, log_power.dtype.min), axis=[1, 2])
    least = tf.maximum(here, loudest) - RANGE
    raised = tf.maximum(log_power, least[:, tf.newaxis, tf.newaxis])
    return tf.where(there, (raised + 4) / 4, 0.0)


def around(recording: np.ndarray, start: int) -> np.ndarray:
    """Cuts a window out of a recording, with what `log_mel` needs around it.

    As in Transformers, the recording is mirrored before its first sample and behind its last, and
    if it is shorter than a window, silence is added to it first.

    Args:
        recording: [N] float32.
        start: Of the window, in samples; a multiple of HOP_SAMPLES below N.

    Returns:
        [SAMPLES_BEFORE + WINDOW_SAMPLES + SAMPLES_BEHIND] float32.
    """
    size = max(len(recording), WINDOW_SAMPLES)
    first, end = start - SAMPLES_BEFORE, start + WINDOW_SAMPLES + SAMPLES_BEHIND
    places = np.abs(np.arange(first, end))
    places = np.minimum(places, 2 * (size - 1) - places)
    there = (places >= 0) & (places < len(recording))
    return np.where(there, recording[places * there], np.float32(0))


def mel_filters(bands: int) -> np.ndarray:
    """Triangular filters that overlap by halves, each of area 1 in hertz (Slaney 1998).

    Returns:
        [FRAME_SAMPLES / 2 + 1, M] float64.
    """
    edges = _hertz(np.linspace(0, _mels(SAMPLE_RATE / 2), bands + 2))
    bins = np.linspace(0, SAMPLE_RATE / 2, FRAME_SAMPLES // 2 + 1)[:, np.newaxis]
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (bins - low) / (middle - low), (high - bins) / (high - middle)
    return np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)


def _mels(hertz: float) -> float:
    return float(_LINEAR_MELS + np.log(hertz / _LINEAR_HERTZ) / _LOG_STEP)


def _hertz(mels: np.ndarray) -> np.ndarray:
    linear = mels * _LINEAR_HERTZ / _LINEAR_MELS
    logarithmic = _LINEAR_HERTZ * np.exp(_LOG_STEP * (mels - _LINEAR_MELS))
    return np.where(mels < _LINEAR_MELS, linear, logarithmic)


def _hann(size: int) -> Any:
    """The periodic Hann window."""
    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)).astype(np.float32)

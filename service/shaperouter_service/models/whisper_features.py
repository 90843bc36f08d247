"""Whisper's input: log-mel spectrograms, as in Transformers' `WhisperFeatureExtractor`.

Letters of shapes: R rows, F frames of a window, M mel bands.
"""

import numpy as np
import tensorflow as tf

from shaperouter_service.speech.audio.spectrum import (
    FRAME_SAMPLES,
    HOP_SAMPLES,
    LEAST_POWER,
    SAMPLES_BEFORE,
    SAMPLES_BEHIND,
    hann_window,
    mel_filters,
)

# How much less than the loudest a power may be, in powers of ten: the rest is raised to it.
RANGE = 8.0


def log_mel(samples: tf.Tensor, bands: int) -> tf.Tensor:
    """Decimal logarithms of the power in each band, at each frame of a window.

    Args:
        samples: [R, SAMPLES_BEFORE + F * HOP_SAMPLES + SAMPLES_BEHIND] float32 at 16 kHz, from -1
            to 1: a window and what lies around it in its recording; see `around`.
        bands: M.

    Returns:
        [R, F, M] float32.
    """
    rows, size = samples.shape
    count = (size - SAMPLES_BEFORE - SAMPLES_BEHIND) // HOP_SAMPLES
    # Frames overlap, but all begin at multiples of a hop: of whole hops, they are put together.
    whole = (FRAME_SAMPLES - 1) // HOP_SAMPLES
    rest = FRAME_SAMPLES - whole * HOP_SAMPLES
    hops = tf.reshape(
        tf.pad(samples, [[0, 0], [0, HOP_SAMPLES - rest]]), [rows, count + whole, HOP_SAMPLES]
    )
    parts = [hops[:, start : start + count] for start in range(whole)]
    frames = tf.concat([*parts, hops[:, whole:, :rest]], axis=-1)  # [R, F, FRAME_SAMPLES]
    spectrum = tf.signal.rfft(frames * hann_window())
    power = tf.square(tf.math.real(spectrum)) + tf.square(tf.math.imag(spectrum))
    bins = power.shape[-1]
    in_bands = tf.matmul(tf.reshape(power, [-1, bins]), mel_filters(bands).astype(np.float32))
    logarithms = tf.math.log(tf.maximum(in_bands, LEAST_POWER)) / np.log(10)
    return tf.reshape(logarithms, [rows, count, bands])


def features(log_power: tf.Tensor, loudest: tf.Tensor, frames: tf.Tensor) -> tf.Tensor:
    """What the encoder reads.

    Args:
        log_power: [R, F, M], of `log_mel`.
        loudest: [R] float32, the largest of the recording's logarithms as far as it is known
            outside of this window; minus infinity where nothing is.
        frames: [R] int32, how many of the window's frames are the recording's. Those behind are 0,
            as faster-whisper has it where a recording ends, and Transformers where a long one does.
            Of one of a single window, Transformers and openai/whisper take silence: with all F
            frames of a window filled with zeros, that is what they are.

    Returns:
        [R, F, M] float32.
    """
    place = tf.range(log_power.shape[1])
    there = (place < frames[:, tf.newaxis])[:, :, tf.newaxis]  # [R, F, 1]
    here = tf.reduce_max(tf.where(there, log_power, log_power.dtype.min), axis=[1, 2])
    least = tf.maximum(here, loudest) - RANGE
    raised = tf.maximum(log_power, least[:, tf.newaxis, tf.newaxis])
    return tf.where(there, (raised + 4) / 4, 0.0)

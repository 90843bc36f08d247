"""Log-mel spectrograms for Whisper, as in Transformers' `WhisperFeatureExtractor`.

Letters in shapes: R rows, F frames of a window, M mel bands.
"""

import numpy as np
import tensorflow as tf

from shaperouter_service.speech.audio.spectrum import (
    FRAME_SAMPLES,
    HOP_SAMPLES,
    MIN_POWER,
    SAMPLES_AFTER,
    SAMPLES_BEFORE,
    hann_window,
    mel_filters,
)

# Powers more than this far below the peak, in powers of ten, are raised to that floor.
RANGE = 8.0


def log_mel(samples: tf.Tensor, bands: int) -> tf.Tensor:
    """Computes the decimal logarithm of the power in each band and frame of a window.

    Args:
        samples: [R, SAMPLES_BEFORE + F * HOP_SAMPLES + SAMPLES_AFTER] float32 at 16 kHz, from -1
            to 1: a window with the samples around it; see `cut_window`.
        bands: M.

    Returns:
        [R, F, M] float32.
    """
    rows, size = samples.shape
    count = (size - SAMPLES_BEFORE - SAMPLES_AFTER) // HOP_SAMPLES
    # Frames overlap, but each begins at a multiple of the hop, so they can be made of whole hops.
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
    logarithms = tf.math.log(tf.maximum(in_bands, MIN_POWER)) / np.log(10)
    return tf.reshape(logarithms, [rows, count, bands])


def features(log_power: tf.Tensor, peak: tf.Tensor, frames: tf.Tensor) -> tf.Tensor:
    """Computes the encoder's input from a spectrogram.

    Args:
        log_power: [R, F, M], of `log_mel`.
        peak: [R] float32, the largest logarithm of the recording as far as it is known outside of
            this window; minus infinity if nothing is known.
        frames: [R] int32, how many frames of the window belong to the recording. The features of
            the other frames are 0, as in faster-whisper, and in Transformers for recordings of
            several windows. Transformers and openai/whisper extend a recording of one window with
            silence instead; for that, count all F frames of a window whose end is zeros.

    Returns:
        [R, F, M] float32.
    """
    frame = tf.range(log_power.shape[1])
    valid = (frame < frames[:, tf.newaxis])[:, :, tf.newaxis]  # [R, F, 1]
    window_peak = tf.reduce_max(tf.where(valid, log_power, log_power.dtype.min), axis=[1, 2])
    floor = tf.maximum(window_peak, peak) - RANGE
    raised = tf.maximum(log_power, floor[:, tf.newaxis, tf.newaxis])
    return tf.where(valid, (raised + 4) / 4, 0.0)

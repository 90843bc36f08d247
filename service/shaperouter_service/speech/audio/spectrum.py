"""The parts of Whisper's log-mel spectrogram that need no TensorFlow.

The device computes the spectrograms themselves, with `models.whisper_features`.
"""

import numpy as np

# Samples per second.
SAMPLE_RATE = 16_000
# Samples of a Fourier transform: 25 ms.
FRAME_SAMPLES = 400
# Samples from one frame to the next: 10 ms.
HOP_SAMPLES = 160

# A frame is centred on its time, so the first begins before its window and the last ends after it.
SAMPLES_BEFORE = FRAME_SAMPLES // 2
SAMPLES_AFTER = FRAME_SAMPLES - HOP_SAMPLES - SAMPLES_BEFORE

# Smallest power of a band.
MIN_POWER = 1e-10

# Slaney's mel scale: linear up to 1000 Hz, which is 15 mels, and logarithmic above.
_LINEAR_HERTZ, _LINEAR_MELS = 1000.0, 15.0
_LOG_STEP = np.log(6.4) / 27

# Values before a window's samples in its source: the recording's peak, and how many frames of the
# window belong to the recording.
HEADER = 2

# Frames that `peak_log_power` computes at once: a few megabytes.
_FRAMES_AT_ONCE = 1000


def cut_window(recording: np.ndarray, start: int, window: int) -> np.ndarray:
    """Cuts out a window, with the samples around it that its first and last frame need.

    As in Transformers, the recording is mirrored before its first sample and after its last. A
    recording shorter than a window is first extended with silence.

    Args:
        recording: [N] float32.
        start: Start of the window, in samples; a multiple of HOP_SAMPLES below N.
        window: Number of samples of the window.

    Returns:
        [SAMPLES_BEFORE + window + SAMPLES_AFTER] float32.
    """
    size = max(len(recording), window)
    indices = np.abs(np.arange(start - SAMPLES_BEFORE, start + window + SAMPLES_AFTER))
    indices = np.minimum(indices, 2 * (size - 1) - indices)
    exists = (indices >= 0) & (indices < len(recording))
    return np.where(exists, recording[indices * exists], np.float32(0))


def window_source(
    recording: np.ndarray, start: int, window: int, *, peak: float, frames: int
) -> np.ndarray:
    """Builds the input of Whisper's encoder from a window of a recording.

    Args:
        recording: [N] float32 at 16 kHz.
        start: Start of the window, in samples; a multiple of HOP_SAMPLES below N.
        window: Number of samples of the window.
        peak: See `models.whisper_features`.
        frames: See `models.whisper_features`.

    Returns:
        [HEADER + SAMPLES_BEFORE + window + SAMPLES_AFTER] float32.
    """
    header = np.array([peak, frames], np.float32)
    return np.concatenate([header, cut_window(recording, start, window)])


def window_source_size(window_frames: int) -> int:
    """Number of values of a window's source."""
    return HEADER + SAMPLES_BEFORE + window_frames * HOP_SAMPLES + SAMPLES_AFTER


def peak_log_power(
    recording: np.ndarray, bands: int, first: int = 0, end: int | None = None
) -> float:
    """The largest decimal logarithm of power in any band and frame of a recording.

    Whisper's features are relative to it, so the windows of a long recording need it for the whole.

    Args:
        recording: [N] float32 at 16 kHz.
        bands: Number of mel bands.
        first: The first frame to include.
        end: The frame after the last one to include; None includes all.

    Returns:
        The logarithm; minus infinity if no frame is included.
    """
    filters = mel_filters(bands).astype(np.float32)
    hann = hann_window()
    end = len(recording) // HOP_SAMPLES if end is None else end
    largest = -np.inf
    for start in range(first, end, _FRAMES_AT_ONCE):
        count = min(_FRAMES_AT_ONCE, end - start)
        samples = cut_window(recording, start * HOP_SAMPLES, count * HOP_SAMPLES)
        frames = np.lib.stride_tricks.sliding_window_view(samples, FRAME_SAMPLES)[::HOP_SAMPLES]
        power = np.square(np.abs(np.fft.rfft(frames * hann)))
        in_bands = max(MIN_POWER, float((power @ filters).max()))
        largest = max(largest, float(np.log10(in_bands)))
    return largest


def mel_filters(bands: int) -> np.ndarray:
    """Triangular filters that overlap by half, each of area 1 in hertz (Slaney 1998).

    Returns:
        [FRAME_SAMPLES / 2 + 1, bands] float64.
    """
    edges = _hertz(np.linspace(0, _mels(SAMPLE_RATE / 2), bands + 2))
    bins = np.linspace(0, SAMPLE_RATE / 2, FRAME_SAMPLES // 2 + 1)[:, np.newaxis]
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (bins - low) / (middle - low), (high - bins) / (high - middle)
    triangles = np.maximum(0, np.minimum(rising, falling))
    return np.asarray(triangles * 2 / (high - low))


def hann_window() -> np.ndarray:
    """The periodic Hann window of a frame, [FRAME_SAMPLES] float32."""
    angle = 2 * np.pi * np.arange(FRAME_SAMPLES) / FRAME_SAMPLES
    return (0.5 - 0.5 * np.cos(angle)).astype(np.float32)


def _mels(hertz: float) -> float:
    return float(_LINEAR_MELS + np.log(hertz / _LINEAR_HERTZ) / _LOG_STEP)


def _hertz(mels: np.ndarray) -> np.ndarray:
    linear = mels * _LINEAR_HERTZ / _LINEAR_MELS
    logarithmic = _LINEAR_HERTZ * np.exp(_LOG_STEP * (mels - _LINEAR_MELS))
    return np.where(mels < _LINEAR_MELS, linear, logarithmic)

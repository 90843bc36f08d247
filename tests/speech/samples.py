"""Recordings as Whisper takes them, one channel at 16 kHz, so that all systems hear the same
samples.

Implementations resample by filters of their own, and what beam search finds depends on them.
"""

import wave
from pathlib import Path

import numpy as np
import soxr

RATE = 16_000


def resample(
    source: Path, target: Path, seconds: float | None = None, first: int | None = None
) -> None:
    """Writes a WAV file of one channel and 16 bits at 16 kHz.

    Args:
        source: A file of another sample rate.
        target: The file to write.
        seconds: Length to keep, from the beginning; None keeps all.
        first: The first sample, if it is to be another.
    """
    with wave.open(str(source)) as file:
        rate = file.getframerate()
        content = file.readframes(file.getnframes())
    samples = np.frombuffer(content, "<i2").astype(np.float32) / 2**15
    resampled = soxr.resample(samples, rate, RATE)
    if seconds is not None:
        resampled = resampled[: round(seconds * RATE)]
    written = np.round(resampled * (2**15 - 1)).astype("<i2")
    if first is not None:
        written[0] = first
    with wave.open(str(target), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(written.tobytes())

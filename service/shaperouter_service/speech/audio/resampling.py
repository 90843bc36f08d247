"""Conversion of blocks of any rate and number of channels to mono at 16 kHz."""

import numpy as np
import soxr

from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.speech.audio.limits import MAX_SAMPLE
from shaperouter_service.speech.audio.spectrum import SAMPLE_RATE
from shaperouter_service.speech.audio.violations import CONTENT, check_seconds


class Resampler:
    """Mixes and resamples a recording, block by block.

    Attributes:
        frames: Frames of the recording so far, at its own rate.
    """

    def __init__(self, rate: int, channels: int) -> None:
        """Starts a recording of the given rate and number of channels, which are within limits."""
        self.frames = 0
        self._rate, self._channels = rate, channels
        self._stream = (
            None if rate == SAMPLE_RATE else soxr.ResampleStream(rate, SAMPLE_RATE, 1, "float32")
        )

    def feed(self, block: np.ndarray, *, is_last: bool = False) -> np.ndarray:
        """Resamples the next block.

        Args:
            block: [N, channels] float32.
            is_last: Whether it is the last block, which may be empty.

        Returns:
            [M] float32, the samples that later blocks will not change.

        Raises:
            InvalidRequestError: The recording has become too long, or a sample is invalid.
        """
        self._check_samples(block)
        self.frames += len(block)
        check_seconds(self.frames / self._rate)
        mono = block[:, 0] if self._channels == 1 else block.mean(axis=1)
        if self._stream is None:
            return np.ascontiguousarray(mono)
        return np.asarray(self._stream.resample_chunk(mono, last=is_last))

    def _check_samples(self, block: np.ndarray) -> None:
        # Also False for NaN.
        usable = np.abs(block) <= MAX_SAMPLE
        if usable.all():
            return
        frame, channel = np.argwhere(~usable)[0]
        second = (self.frames + frame) / self._rate
        raise InvalidRequestError.of(
            CONTENT,
            f"samples must be numbers from {-MAX_SAMPLE:g} to {MAX_SAMPLE:g}, got "
            f"{block[frame, channel]:g} at {second:.3f} seconds",
        )

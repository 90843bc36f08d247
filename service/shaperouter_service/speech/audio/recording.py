"""A recording that arrives in pieces, and its windows."""

import math
from dataclasses import dataclass

import numpy as np

from shaperouter_service.speech.audio.spectrum import (
    HOP_SAMPLES,
    SAMPLE_RATE,
    SAMPLES_BEFORE,
    loudest,
    source,
)


@dataclass(frozen=True, kw_only=True)
class Measure:
    """Properties of a whole recording that must be known before its first window.

    Attributes:
        seconds: Length of the recording.
        loudest: See `spectrum.loudest`.
    """

    seconds: float
    loudest: float


class Recording:
    """A recording at 16 kHz that drops the samples that have been transcribed.

    Not thread-safe.

    Attributes:
        is_complete: Whether no more will arrive.
    """

    def __init__(self, *, bands: int, window_frames: int) -> None:
        """Begins a recording.

        Args:
            bands: Number of mel bands of the model.
            window_frames: Frames of a window.
        """
        self._bands, self._window = bands, window_frames * HOP_SAMPLES
        # The remaining samples, and how many were dropped before them: a multiple of the hop.
        self._samples = np.zeros([0], np.float32)
        self._forgotten = 0
        # The level of so many first frames.
        self._loudest, self._measured = -math.inf, 0
        # Properties of the whole recording, if it was measured before.
        self._known: Measure | None = None
        self.is_complete = False

    @property
    def seconds(self) -> float:
        """Length of the recording, or of the part that has arrived if the whole is unknown."""
        return self._known.seconds if self._known else self._size / SAMPLE_RATE

    @property
    def kept_bytes(self) -> int:
        """Bytes of the samples that have not been dropped."""
        return self._samples.nbytes

    @property
    def frames(self) -> int:
        """Number of final frames of its spectrogram."""
        certain = self._size if self.is_complete else max(0, self._size - SAMPLES_BEFORE)
        return certain // HOP_SAMPLES

    def append(self, samples: np.ndarray) -> None:
        """Takes the next samples, [N] float32."""
        self._samples = np.concatenate([self._samples, samples])

    def finish(self) -> None:
        """Marks the recording as complete."""
        self.is_complete = True

    def empty_copy(self) -> "Recording":
        """Begins another recording for the same model."""
        return Recording(bands=self._bands, window_frames=self._window // HOP_SAMPLES)

    def measure(self) -> "Measure":
        """Measures the samples; dropped ones have been measured before."""
        return Measure(seconds=self.seconds, loudest=self._level())

    def know(self, measure: "Measure") -> None:
        """Stores the properties of the whole recording while most of it is still to arrive."""
        self._known = measure

    def window(self, first_frame: int, frames: int) -> np.ndarray:
        """Returns a window as input of Whisper's encoder.

        Args:
            first_frame: First frame of the window; must not have been dropped.
            frames: Frames of the recording in the window.

        Returns:
            The result of `spectrum.source`.
        """
        start = first_frame * HOP_SAMPLES - self._forgotten
        return source(self._samples, start, self._window, loudest=self._level(), frames=frames)

    def forget(self, before_frame: int) -> None:
        """Drops the samples before a frame, except those that the frame's own spectrum needs."""
        # A model's last timestamp may be after the end of the samples.
        keep_from = min(before_frame * HOP_SAMPLES - SAMPLES_BEFORE, self._size)
        # Drop a window's worth at a time, because the rest is moved.
        keep_from -= keep_from % HOP_SAMPLES
        if keep_from - self._forgotten >= self._window:
            self._level()
            self._samples = self._samples[keep_from - self._forgotten :].copy()
            self._forgotten = keep_from

    @property
    def _size(self) -> int:
        return self._forgotten + len(self._samples)

    def _level(self) -> float:
        """The recording's level as far as it is known. Each frame is measured once."""
        if self._known:
            return self._known.loudest
        gone = self._forgotten // HOP_SAMPLES
        first, end = self._measured - gone, self.frames - gone
        self._loudest = max(self._loudest, loudest(self._samples, self._bands, first, end))
        self._measured = self.frames
        return self._loudest

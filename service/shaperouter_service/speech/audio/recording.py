"""A recording whose samples arrive block by block, and its windows."""

import math
from dataclasses import dataclass

import numpy as np

from shaperouter_service.speech.audio.spectrum import (
    HOP_SAMPLES,
    SAMPLE_RATE,
    SAMPLES_BEFORE,
    peak_log_power,
    window_source,
)


@dataclass(frozen=True, kw_only=True)
class RecordingStats:
    """Properties of a whole recording that its first window may need.

    Attributes:
        seconds: Length of the recording.
        peak: See `spectrum.peak_log_power`.
    """

    seconds: float
    peak: float


class Recording:
    """A recording at 16 kHz, which drops samples once they are transcribed.

    Not thread-safe.

    Attributes:
        is_complete: Whether all samples have arrived.
    """

    def __init__(self, *, bands: int, window_frames: int) -> None:
        """Begins a recording.

        Args:
            bands: Number of mel bands of the model.
            window_frames: Frames of a window.
        """
        self._bands, self._window = bands, window_frames * HOP_SAMPLES
        # The samples kept, and how many were dropped before them, a multiple of the hop.
        self._samples = np.zeros([0], np.float32)
        self._dropped = 0
        # Blocks after those samples. They are joined when somebody looks, since that copies all.
        self._blocks: list[np.ndarray] = []
        self._size = 0
        # The peak of the first `_measured` frames.
        self._peak, self._measured = -math.inf, 0
        # Properties of the whole recording, if it was measured before.
        self._stats: RecordingStats | None = None
        self.is_complete = False

    @property
    def seconds(self) -> float:
        """Length of the recording, or of what has arrived if the whole is unknown."""
        return self._stats.seconds if self._stats else self._size / SAMPLE_RATE

    @property
    def kept_bytes(self) -> int:
        """Bytes of the samples that are not dropped yet."""
        return (self._size - self._dropped) * self._samples.itemsize

    @property
    def frames(self) -> int:
        """Number of frames of its spectrogram that later samples will not change."""
        final = self._size if self.is_complete else max(0, self._size - SAMPLES_BEFORE)
        return final // HOP_SAMPLES

    def append(self, samples: np.ndarray) -> None:
        """Appends the next samples, [N] float32."""
        self._blocks.append(samples)
        self._size += len(samples)

    def finish(self) -> None:
        """Marks the recording as complete."""
        self.is_complete = True

    def empty_copy(self) -> "Recording":
        """Creates an empty recording for the same model."""
        return Recording(bands=self._bands, window_frames=self._window // HOP_SAMPLES)

    def measure(self) -> RecordingStats:
        """Measures all samples so far; dropped ones have been measured before."""
        return RecordingStats(seconds=self.seconds, peak=self._current_peak())

    def set_stats(self, stats: RecordingStats) -> None:
        """Sets the properties of the whole recording before all of it has arrived."""
        self._stats = stats

    def window(self, first_frame: int, frames: int) -> np.ndarray:
        """Returns a window as input of Whisper's encoder.

        Args:
            first_frame: First frame of the window; must not be dropped.
            frames: Frames of the recording in the window.

        Returns:
            The result of `spectrum.window_source`.
        """
        start = first_frame * HOP_SAMPLES - self._dropped
        return window_source(
            self._joined(), start, self._window, peak=self._current_peak(), frames=frames
        )

    def drop_before(self, frame: int) -> None:
        """Drops the samples before a frame, except those that its own spectrum needs."""
        # A model's last timestamp may be after the end of the samples.
        keep_from = min(frame * HOP_SAMPLES - SAMPLES_BEFORE, self._size)
        # Drop at least a window at a time, because the rest is copied.
        keep_from -= keep_from % HOP_SAMPLES
        if keep_from - self._dropped >= self._window:
            self._current_peak()
            self._samples = self._joined()[keep_from - self._dropped :].copy()
            self._dropped = keep_from

    def _joined(self) -> np.ndarray:
        if self._blocks:
            self._samples = np.concatenate([self._samples, *self._blocks])
            self._blocks.clear()
        return self._samples

    def _current_peak(self) -> float:
        """The peak of the frames that have arrived; measures each frame once."""
        if self._stats:
            return self._stats.peak
        dropped = self._dropped // HOP_SAMPLES
        first, end = self._measured - dropped, self.frames - dropped
        self._peak = max(self._peak, peak_log_power(self._joined(), self._bands, first, end))
        self._measured = self.frames
        return self._peak

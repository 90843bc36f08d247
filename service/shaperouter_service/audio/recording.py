"""A recording as it comes in, and the windows that are cut out of it."""

import math

import numpy as np

from shaperouter_service.audio.spectrum import (
    HOP_SAMPLES,
    SAMPLE_RATE,
    SAMPLES_BEFORE,
    loudest,
    source,
)


class Recording:
    """A recording at 16 kHz, of which what has been transcribed is forgotten.

    Not safe to use from several threads.

    Attributes:
        is_complete: Whether no more will come.
    """

    def __init__(self, *, bands: int, window_frames: int) -> None:
        """Begins a recording.

        Args:
            bands: Mel bands of the model.
            window_frames: Frames of a window.
        """
        self._bands, self._window = bands, window_frames * HOP_SAMPLES
        # What is still there, and how many samples came before it: whole hops.
        self._samples = np.zeros([0], np.float32)
        self._forgotten = 0
        # Of the first so many frames.
        self._loudest, self._measured = -math.inf, 0
        self.is_complete = False

    @property
    def seconds(self) -> float:
        """How long it is so far."""
        return self._size / SAMPLE_RATE

    @property
    def frames(self) -> int:
        """How many frames of its spectrogram are certain."""
        certain = self._size if self.is_complete else max(0, self._size - SAMPLES_BEFORE)
        return certain // HOP_SAMPLES

    def append(self, samples: np.ndarray) -> None:
        """Takes the next samples, [N] float32."""
        self._samples = np.concatenate([self._samples, samples])

    def finish(self) -> None:
        """Takes note that no more will come."""
        self.is_complete = True

    def window(self, first_frame: int, frames: int) -> np.ndarray:
        """Cuts out a window, as Whisper's encoder takes it.

        Args:
            first_frame: Where it begins; not forgotten.
            frames: Of the recording in it.

        Returns:
            What `spectrum.source` makes.
        """
        start = first_frame * HOP_SAMPLES - self._forgotten
        return source(self._samples, start, self._window, loudest=self._level(), frames=frames)

    def forget(self, before_frame: int) -> None:
        """Lets go of what lies before a frame, but for what the frame's own spectrum needs."""
        # A model's last timestamp may lie behind the end of what there is.
        keep_from = min(before_frame * HOP_SAMPLES - SAMPLES_BEFORE, self._size)
        # A window's worth at a time, since the rest is moved.
        keep_from -= keep_from % HOP_SAMPLES
        if keep_from - self._forgotten >= self._window:
            self._level()
            self._samples = self._samples[keep_from - self._forgotten :].copy()
            self._forgotten = keep_from

    @property
    def _size(self) -> int:
        return self._forgotten + len(self._samples)

    def _level(self) -> float:
        """How loud the recording is as far as it is known; each frame is measured once."""
        gone = self._forgotten // HOP_SAMPLES
        first, end = self._measured - gone, self.frames - gone
        self._loudest = max(self._loudest, loudest(self._samples, self._bands, first, end))
        self._measured = self.frames
        return self._loudest

"""Bare samples, whole or as they come in."""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from shaperouter_service.audio.resampling import Resampler
from shaperouter_service.audio.violations import (
    CONTENT,
    check_bytes,
    check_channels,
    check_rate,
    violation,
)


class Encoding(Enum):
    """How a sample is written; the value is NumPy's name of it."""

    S16LE = "<i2"
    F32LE = "<f4"


# The largest of 16 bits, which is 1.
_FULL_SCALE = np.float32(2**15)


@dataclass(frozen=True, kw_only=True)
class PCMFormat:
    """What bare samples mean.

    Attributes:
        encoding: Of a sample.
        rate: Samples a second.
        channels: Samples at a time, one after the other.
    """

    encoding: Encoding
    rate: int
    channels: int

    @property
    def frame_bytes(self) -> int:
        """Bytes of the samples of all channels at one time."""
        return np.dtype(self.encoding.value).itemsize * self.channels


class PCMDecoder:
    """Turns bare samples into mono at 16 kHz as they come in, in pieces of any size."""

    def __init__(self, form: PCMFormat) -> None:
        """Takes what the samples mean.

        Raises:
            InvalidRequestError: There are too many or too few a second or at a time.
        """
        check_rate(form.rate, "audio.sample_rate")
        check_channels(form.channels, "audio.channels")
        self._form = form
        self._resampler = Resampler(form.rate, form.channels)
        # The beginning of a frame whose end has not come yet.
        self._rest = b""

    def feed(self, content: bytes) -> np.ndarray:
        """Takes the next piece; returns [N] float32, as much as is certain.

        Raises:
            InvalidRequestError: The recording is too long by now, or a sample is no sample.
        """
        content = self._rest + content
        whole = len(content) - len(content) % self._form.frame_bytes
        self._rest = content[whole:]
        return self._resampler.feed(self._frames(content[:whole]))

    def finish(self) -> np.ndarray:
        """Ends the recording; returns what is left of it.

        Raises:
            InvalidRequestError: The last frame is not whole.
        """
        if self._rest:
            size = self._form.frame_bytes
            got = self._resampler.frames * size + len(self._rest)
            raise violation(CONTENT, f"must be whole frames of {size} bytes each, got {got} bytes")
        return self._resampler.feed(self._frames(b""), is_last=True)

    def _frames(self, content: bytes) -> np.ndarray:
        samples = np.frombuffer(content, self._form.encoding.value)
        if self._form.encoding is Encoding.S16LE:
            samples = samples.astype(np.float32) / _FULL_SCALE
        return samples.reshape([-1, self._form.channels])


def decode_pcm(content: bytes, form: PCMFormat) -> np.ndarray:
    """Turns bare samples into mono at 16 kHz, [N] float32.

    Raises:
        InvalidRequestError: They are none, too many, not whole, or silent.
    """
    decoder = PCMDecoder(form)
    check_bytes(len(content))
    return audible(np.concatenate([decoder.feed(content), decoder.finish()]))


def audible(recording: np.ndarray) -> np.ndarray:
    """The recording, if it is one.

    Raises:
        InvalidRequestError: Every sample is 0, as of a microphone that was off.
    """
    if not recording.any():
        raise violation(CONTENT, f"must have a sound, got {len(recording)} samples that are all 0")
    return recording

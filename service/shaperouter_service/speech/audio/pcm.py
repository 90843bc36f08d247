"""Decoding of raw samples, complete or as they arrive."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np

from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.speech.audio.resampling import Resampler
from shaperouter_service.speech.audio.violations import (
    CONTENT,
    check_bytes,
    check_channels,
    check_rate,
)


class Encoding(Enum):
    """The format of a sample; the value is NumPy's name for it."""

    S16LE = "<i2"
    F32LE = "<f4"


# Bytes of samples to decode at once: a few milliseconds of work.
BLOCK_BYTES = 2**16

# The 16-bit value that stands for 1.
_FULL_SCALE = np.float32(2**15)


@dataclass(frozen=True, kw_only=True)
class PCMFormat:
    """The format of raw samples.

    Attributes:
        encoding: Format of a sample.
        rate: Samples per second.
        channels: Number of interleaved channels.
    """

    encoding: Encoding
    rate: int
    channels: int

    @property
    def frame_bytes(self) -> int:
        """Bytes of one sample of each channel."""
        return np.dtype(self.encoding.value).itemsize * self.channels


class PCMDecoder:
    """Converts raw samples to mono at 16 kHz as they arrive, in pieces of any size."""

    def __init__(self, pcm_format: PCMFormat) -> None:
        """Starts a recording of the given format.

        Raises:
            InvalidRequestError: The rate or the number of channels exceeds a limit.
        """
        check_rate(pcm_format.rate, "audio.sample_rate")
        check_channels(pcm_format.channels, "audio.channels")
        self._format = pcm_format
        self._resampler = Resampler(pcm_format.rate, pcm_format.channels)
        # The beginning of a frame whose end has not arrived yet.
        self._rest = b""
        # Samples at 16 kHz so far.
        self._samples = 0

    def feed(self, content: bytes) -> np.ndarray:
        """Converts the next piece; returns the final samples so far, [N] float32.

        Raises:
            InvalidRequestError: The recording has become too long, or a sample is invalid.
        """
        content = self._rest + content
        whole = len(content) - len(content) % self._format.frame_bytes
        self._rest = content[whole:]
        samples = self._resampler.feed(self._frames(content[:whole]))
        self._samples += len(samples)
        return samples

    def finish(self) -> np.ndarray:
        """Ends the recording and returns the rest of it.

        Raises:
            InvalidRequestError: The last frame is incomplete, or the recording has no samples.
        """
        if self._rest:
            size = self._format.frame_bytes
            got = self._resampler.frames * size + len(self._rest)
            raise InvalidRequestError.of(
                CONTENT, f"must be whole frames of {size} bytes each, got {got} bytes"
            )
        samples = self._resampler.feed(self._frames(b""), is_last=True)
        if not self._samples + len(samples):
            # A few samples of a high rate may make none.
            raise _silent(0)
        return samples

    def _frames(self, content: bytes) -> np.ndarray:
        samples = np.frombuffer(content, self._format.encoding.value)
        if self._format.encoding is Encoding.S16LE:
            samples = samples.astype(np.float32) / _FULL_SCALE
        return samples.reshape([-1, self._format.channels])


def decode_pcm(content: bytes, pcm_format: PCMFormat) -> Iterator[np.ndarray]:
    """Converts raw samples to mono at 16 kHz, block by block.

    Yields:
        [N] float32. All blocks together are the recording.

    Raises:
        InvalidRequestError: There are no samples or too many, the last is incomplete, or all are 0.
    """
    decoder = PCMDecoder(pcm_format)
    check_bytes(len(content))
    yield from refuse_silence(_blocks(decoder, content))


def _blocks(decoder: PCMDecoder, content: bytes) -> Iterator[np.ndarray]:
    for start in range(0, len(content), BLOCK_BYTES):
        yield decoder.feed(content[start : start + BLOCK_BYTES])
    yield decoder.finish()


def refuse_silence(blocks: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Passes blocks on, and refuses the recording at its end if it was silent.

    Raises:
        InvalidRequestError: Every sample is 0, as from a microphone that was off.
    """
    samples, is_silent = 0, True
    for block in blocks:
        samples += len(block)
        is_silent = is_silent and not block.any()
        yield block
    if is_silent:
        raise _silent(samples)


def _silent(samples: int) -> InvalidRequestError:
    """The error for a recording whose samples are all 0."""
    return InvalidRequestError.of(
        CONTENT, f"must have a sample other than 0, got {samples} samples that are all 0"
    )

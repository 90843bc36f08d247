"""Decoding of recordings in files."""

import io
from collections.abc import Iterator

import numpy as np
import soundfile

from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.speech.audio.c_stderr import c_stderr_discarded
from shaperouter_service.speech.audio.containers import (
    Container,
    check_complete,
    detect_container,
    truncated,
)
from shaperouter_service.speech.audio.mp3 import open_mp3
from shaperouter_service.speech.audio.pcm import refuse_silence
from shaperouter_service.speech.audio.resampling import Resampler
from shaperouter_service.speech.audio.violations import (
    CONTENT,
    check_bytes,
    check_channels,
    check_rate,
    check_seconds,
)
from shaperouter_service.speech.audio.wav import open_wav

# Samples of all channels, and seconds, to decode at once: a few milliseconds of work.
BLOCK_SAMPLES = 2**16
BLOCK_SECONDS = 2
# libsndfile's length for a file that does not give one, such as a FLAC written to a pipe.
_UNKNOWN_FRAMES = 2**63 - 1


class _SequentialFile(soundfile.SoundFile):  # type: ignore[misc]  # it has no types
    """A file that is read from beginning to end and whose length may be unknown."""

    def seekable(self) -> bool:
        """False; otherwise soundfile would seek to its own position after each read."""
        return False


def decode_file(content: bytes, declared: Container | None = None) -> Iterator[np.ndarray]:
    """Decodes a WAV, FLAC, OGG or MP3 to mono at 16 kHz, block by block.

    The file's headers are checked against the limits before decoding, and each decoded block again.

    Args:
        content: The file.
        declared: The declared format; None to detect it.

    Yields:
        [N] float32. All blocks together are the recording.

    Raises:
        InvalidRequestError: The file is empty, too large, too long, of another format, truncated,
            damaged, or silent, has several streams, or its rate, channels or samples exceed a
            limit.
    """
    check_bytes(len(content))
    container = detect_container(content, declared)
    check_complete(content, container)
    try:
        with c_stderr_discarded():
            file = _SequentialFile(_open(content, container))
        with file:
            yield from refuse_silence(_read(file, container))
    except soundfile.LibsndfileError as error:
        raise InvalidRequestError.of(
            CONTENT, f"must be a complete {container.value} file: {error.error_string}"
        ) from error


def _open(content: bytes, container: Container) -> io.RawIOBase | io.BytesIO:
    if container is Container.MP3:
        return open_mp3(content)
    if container is Container.WAV:
        return open_wav(content)
    return io.BytesIO(content)


def _read(file: soundfile.SoundFile, container: Container) -> Iterator[np.ndarray]:
    check_channels(file.channels, CONTENT)
    check_rate(file.samplerate, CONTENT)
    expected = 0 if file.frames == _UNKNOWN_FRAMES else file.frames
    check_seconds(expected / file.samplerate)
    resampler = Resampler(file.samplerate, file.channels)
    frames = min(BLOCK_SAMPLES // file.channels, BLOCK_SECONDS * file.samplerate)
    while True:
        with c_stderr_discarded():
            block = file.read(frames, dtype="float32", always_2d=True)
        yield resampler.feed(block, is_last=not len(block))
        if not len(block):
            break
    if resampler.frames < expected:
        raise truncated(container, f"it should have {expected} frames, got {resampler.frames}")

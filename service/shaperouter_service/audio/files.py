"""Recordings in files."""

import io

import numpy as np
import soundfile

from shaperouter_service.audio.containers import Container, check_whole, cut_off, recognise
from shaperouter_service.audio.pcm import audible
from shaperouter_service.audio.resampling import Resampler
from shaperouter_service.audio.violations import (
    CONTENT,
    check_bytes,
    check_channels,
    check_rate,
    check_seconds,
    violation,
)

# Frames that are decoded at once: a megabyte or two.
BLOCK_FRAMES = 2**16


def decode_file(content: bytes, declared: Container | None = None) -> np.ndarray:
    """Turns a WAV, FLAC, OGG or MP3 into mono at 16 kHz, [N] float32.

    Limits are checked by what the file says of itself before anything is decoded, and by what is
    decoded as it comes.

    Args:
        content: The file.
        declared: What it is said to be; None lets it tell.

    Raises:
        InvalidRequestError: It is empty, too large, too long, of another kind, not whole or
            damaged, or silent; or its rate, channels or samples are over a limit.
    """
    check_bytes(len(content))
    container = recognise(content, declared)
    check_whole(content, container)
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            return audible(_read(file, container))
    except soundfile.LibsndfileError as error:
        raise violation(
            CONTENT, f"must be a whole {container.value} file: {error.error_string}"
        ) from error


def _read(file: soundfile.SoundFile, container: Container) -> np.ndarray:
    check_channels(file.channels, CONTENT)
    check_rate(file.samplerate, CONTENT)
    check_seconds(file.frames / file.samplerate)
    resampler = Resampler(file.samplerate, file.channels)
    blocks = []
    while True:
        block = file.read(BLOCK_FRAMES, dtype="float32", always_2d=True)
        blocks.append(resampler.feed(block, is_last=not len(block)))
        if not len(block):
            break
    if resampler.frames < file.frames:
        raise cut_off(container, f"it has {file.frames} frames, got {resampler.frames}")
    return np.concatenate(blocks)

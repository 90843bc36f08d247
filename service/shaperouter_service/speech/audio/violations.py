"""Errors about a recording; each names one field of the request's `audio`."""

from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.speech.audio.limits import (
    MAX_AUDIO_BYTES,
    MAX_AUDIO_CHANNELS,
    MAX_AUDIO_SECONDS,
    MAX_SAMPLE_RATE,
    MIN_SAMPLE_RATE,
)

CONTENT = "audio.content"


def check_bytes(size: int) -> None:
    """Checks the size of a file or of samples.

    Raises:
        InvalidRequestError: It is empty or too large.
    """
    if not 0 < size <= MAX_AUDIO_BYTES:
        raise InvalidRequestError.of(CONTENT, f"must have 1 to {MAX_AUDIO_BYTES} bytes, got {size}")


def check_rate(rate: int, field: str) -> None:
    """Checks a sample rate.

    Raises:
        InvalidRequestError: It is too low or too high.
    """
    if not MIN_SAMPLE_RATE <= rate <= MAX_SAMPLE_RATE:
        raise InvalidRequestError.of(
            field,
            f"must have {MIN_SAMPLE_RATE} to {MAX_SAMPLE_RATE} samples per second, got {rate}",
        )


def check_channels(channels: int, field: str) -> None:
    """Checks the number of channels.

    Raises:
        InvalidRequestError: It is 0 or too large.
    """
    if not 1 <= channels <= MAX_AUDIO_CHANNELS:
        raise InvalidRequestError.of(
            field, f"must have 1 to {MAX_AUDIO_CHANNELS} channels, got {channels}"
        )


def check_seconds(seconds: float) -> None:
    """Checks the length of a recording.

    Raises:
        InvalidRequestError: It is too long.
    """
    if seconds > MAX_AUDIO_SECONDS:
        raise InvalidRequestError.of(
            CONTENT, f"must last at most {MAX_AUDIO_SECONDS} seconds, got {seconds:.1f}"
        )

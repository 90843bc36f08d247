"""A caller's declarations about a recording, and decoding by them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from shaperouter_service.errors import InvalidRequestError, Violation
from shaperouter_service.speech.audio.containers import Container
from shaperouter_service.speech.audio.files import decode_file
from shaperouter_service.speech.audio.pcm import Encoding, PCMFormat, decode_pcm

# Formats by the names that callers and errors use.
FORMATS: Mapping[str, Container | Encoding] = {
    **{container.name.lower(): container for container in Container},
    **{f"pcm_{encoding.name.lower()}": encoding for encoding in Encoding},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredAudio:
    """A recording's format as its caller declares it.

    Attributes:
        format: A file's format, or that of raw samples; None to detect it. A number is
            an unknown format, which is refused.
        sample_rate: Samples per second, of raw samples only.
        channels: Number of interleaved channels, of raw samples only; None means 1.
    """

    format: Container | Encoding | int | None = None
    sample_rate: int | None = None
    channels: int | None = None

    def violations(self) -> Iterator[Violation]:
        """Contradictions in the declaration, whatever the recording is."""
        if isinstance(self.format, Encoding):
            if self.sample_rate is None:
                description = "must be set for raw samples, got none"
                yield Violation(field="audio.sample_rate", description=description)
            return
        if isinstance(self.format, int):
            description = f"must be one of {', '.join(FORMATS)}, got {self.format}"
            yield Violation(field="audio.format", description=description)
        for name, value in (("sample_rate", self.sample_rate), ("channels", self.channels)):
            if value is not None:
                description = f"must not be set for a file, which states it itself, got {value}"
                yield Violation(field=f"audio.{name}", description=description)

    def pcm_format(self) -> PCMFormat | None:
        """The format of raw samples; None for a file.

        Raises:
            InvalidRequestError: The declaration contradicts itself.
        """
        if violations := list(self.violations()):
            raise InvalidRequestError(*violations)
        if not isinstance(self.format, Encoding) or self.sample_rate is None:
            return None
        channels = 1 if self.channels is None else self.channels
        return PCMFormat(encoding=self.format, rate=self.sample_rate, channels=channels)


def decode_audio(declared: DeclaredAudio, content: bytes) -> Iterator[np.ndarray]:
    """Decodes a recording to mono at 16 kHz, block by block. Slow; to be read in a thread.

    Args:
        declared: The format of the content.
        content: The recording.

    Yields:
        [N] float32. All blocks together are the recording.

    Raises:
        InvalidRequestError: It contradicts itself, exceeds a limit, or is not a recording.
    """
    pcm_format = declared.pcm_format()
    if pcm_format is not None:
        return decode_pcm(content, pcm_format)
    container = declared.format if isinstance(declared.format, Container) else None
    return decode_file(content, container)

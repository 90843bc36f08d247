"""Conversion of `Audio` messages to samples."""

from collections.abc import Iterator, Mapping

import numpy as np

from shaperouter.v1 import transcription_pb2
from shaperouter_service.errors import InvalidRequestError, Violation
from shaperouter_service.speech.audio import Container, Encoding, PCMFormat, decode_file, decode_pcm

CONTAINERS: Mapping[int, Container] = {
    transcription_pb2.AUDIO_FORMAT_WAV: Container.WAV,
    transcription_pb2.AUDIO_FORMAT_FLAC: Container.FLAC,
    transcription_pb2.AUDIO_FORMAT_OGG: Container.OGG,
    transcription_pb2.AUDIO_FORMAT_MP3: Container.MP3,
}
ENCODINGS: Mapping[int, Encoding] = {
    transcription_pb2.AUDIO_FORMAT_PCM_S16LE: Encoding.S16LE,
    transcription_pb2.AUDIO_FORMAT_PCM_F32LE: Encoding.F32LE,
}


def audio_violations(audio: transcription_pb2.Audio) -> Iterator[Violation]:
    """Contradictions in a message, whatever its content is."""
    if audio.format in ENCODINGS:
        if not audio.HasField("sample_rate"):
            description = "must be set for raw samples, got none"
            yield Violation(field="audio.sample_rate", description=description)
        return
    if audio.format not in (transcription_pb2.AUDIO_FORMAT_UNSPECIFIED, *CONTAINERS):
        names = ", ".join(transcription_pb2.AudioFormat.keys()[1:])
        description = f"must be one of {names}, got {audio.format}"
        yield Violation(field="audio.format", description=description)
    if audio.HasField("sample_rate"):
        yield _only_of_samples("audio.sample_rate", audio.sample_rate)
    if audio.HasField("channels"):
        yield _only_of_samples("audio.channels", audio.channels)


def pcm_format(audio: transcription_pb2.Audio) -> PCMFormat | None:
    """The format of raw samples; None for a file. The message must be valid."""
    if audio.format not in ENCODINGS:
        return None
    return PCMFormat(
        encoding=ENCODINGS[audio.format],
        rate=audio.sample_rate,
        channels=audio.channels if audio.HasField("channels") else 1,
    )


def decode_audio(audio: transcription_pb2.Audio, content: bytes) -> Iterator[np.ndarray]:
    """Decodes a recording to mono at 16 kHz, block by block. Slow; to be read in a thread.

    Args:
        audio: The format of the content.
        content: The recording; not read from the message, which copies it at each access.

    Yields:
        [N] float32. All blocks together are the recording.

    Raises:
        InvalidRequestError: It contradicts itself, exceeds a limit, or is no recording.
    """
    violations = list(audio_violations(audio))
    if violations:
        raise InvalidRequestError(*violations)
    form = pcm_format(audio)
    if form is not None:
        return decode_pcm(content, form)
    return decode_file(content, CONTAINERS.get(audio.format))


def _only_of_samples(field: str, value: int) -> Violation:
    return Violation(
        field=field, description=f"must not be set for a file, which states it itself, got {value}"
    )

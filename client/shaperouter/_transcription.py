"""The results of a transcription, whole or piece by piece."""

import enum
from dataclasses import dataclass

from shaperouter._generation import GraphUse

_REPR_TEXT = 40  # characters of the text that repr() shows


class AudioFormat(enum.StrEnum):
    """The format of audio bytes."""

    WAV = "wav"
    FLAC = "flac"
    OGG = "ogg"  # of Vorbis or Opus
    MP3 = "mp3"
    PCM_S16LE = "pcm_s16le"  # raw samples, 16-bit integers
    PCM_F32LE = "pcm_f32le"  # raw samples, 32-bit floating-point numbers from -1 to 1


class TranscriptionTask(enum.StrEnum):
    """Whether to transcribe or to translate."""

    TRANSCRIBE = "transcribe"  # write in the spoken language
    TRANSLATE = "translate"  # write in English


@dataclass(frozen=True, kw_only=True)
class TranscribedWord:
    """A word, with its punctuation.

    Attributes:
        text: The word as in the segment's text, including a space before it.
        start_seconds: Start time in the recording, in seconds.
        end_seconds: End time in the recording, in seconds.
        probability: Mean probability of its tokens, from 0 to 1.
    """

    text: str
    start_seconds: float
    end_seconds: float
    probability: float


@dataclass(frozen=True, kw_only=True)
class TranscribedSegment:
    """A part of a transcript; ``str()`` gives its text.

    Attributes:
        start_seconds: Start time in the recording, in seconds.
        end_seconds: End time in the recording, in seconds.
        text: The text.
        token_ids: Its tokens, including timestamps.
        words: Its words, if requested.
        temperature: The temperature at which it was decoded.
        mean_logprob: Mean log-probability of the tokens of its window.
        compression_ratio: Size of its window's text divided by its size compressed with zlib.
        no_speech_probability: Probability that nobody speaks in its window.
    """

    start_seconds: float
    end_seconds: float
    text: str
    token_ids: tuple[int, ...] = ()
    words: tuple[TranscribedWord, ...] = ()
    temperature: float = 0.0
    mean_logprob: float = 0.0
    compression_ratio: float = 0.0
    no_speech_probability: float = 0.0

    def __str__(self) -> str:
        """The text."""
        return self.text


@dataclass(frozen=True, kw_only=True)
class DetectedLanguage:
    """The language of a recording.

    Attributes:
        code: Its code, e.g. `de`.
        probability: Its probability; 1 if the request gave the language or the model is
            English-only.
    """

    code: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class TranscriptionProgress:
    """The progress of a transcription.

    Attributes:
        transcribed_seconds: How much of the recording is transcribed, in seconds.
        received_seconds: How much of the recording has been received and decoded, in seconds.
    """

    transcribed_seconds: float
    received_seconds: float


@dataclass(frozen=True, kw_only=True, repr=False)
class Transcription:
    """A complete transcript; ``str()`` gives its text.

    Attributes:
        segments: The segments, in order; none if nobody speaks.
        language: The language of the recording.
        request_id: Id of the request; the service's logs have the same.
        model: Name of the model that served the request.
        seed: The seed used; giving it again gives the same transcript.
        audio_seconds: Length of the recording, in seconds.
        total_seconds: From the request's arrival at the service to the end, in seconds.
        device_seconds: Device time, in seconds, shared with other requests.
        graphs: The graphs asked for and the graphs that served, in order of first use.
        revision: Revision of the model that served the request; see `Model.revision`.
    """

    segments: tuple[TranscribedSegment, ...]
    language: DetectedLanguage
    request_id: str
    model: str
    seed: int
    audio_seconds: float
    total_seconds: float
    device_seconds: float
    graphs: tuple[GraphUse, ...]
    revision: str = ""

    @property
    def text(self) -> str:
        """The texts of all segments, joined."""
        return "".join(segment.text for segment in self.segments).strip()

    @property
    def real_time_factor(self) -> float:
        """Processing time divided by the length of the recording."""
        return self.total_seconds / self.audio_seconds

    def __str__(self) -> str:
        """The text."""
        return self.text

    def __repr__(self) -> str:
        """One short line, however long the text is."""
        text = self.text
        if len(text) > _REPR_TEXT:
            text = text[: _REPR_TEXT - 1] + "…"
        return (
            f"<Transcription {text!r}: {len(self.segments)} segments, {self.audio_seconds:.1f} s, "
            f"request {self.request_id}>"
        )

"""What a transcription gives back, whole or piece by piece."""

import enum
from dataclasses import dataclass

from shaperouter._generation import GraphUse

_REPR_TEXT = 40  # characters of the text that repr() shows


class AudioFormat(enum.StrEnum):
    """What audio is written as."""

    WAV = "wav"
    FLAC = "flac"
    OGG = "ogg"  # of Vorbis or Opus
    MP3 = "mp3"
    PCM_S16LE = "pcm_s16le"  # bare samples, integers of 16 bits
    PCM_F32LE = "pcm_f32le"  # bare samples, floating-point numbers from -1 to 1


class TranscriptionTask(enum.StrEnum):
    """What a transcript is."""

    TRANSCRIBE = "transcribe"  # what was said, in its language
    TRANSLATE = "translate"  # what was said, in English


@dataclass(frozen=True, kw_only=True)
class TranscribedWord:
    """A word, with the punctuation that belongs to it.

    Attributes:
        text: As it stands in the segment's text, a space before it included.
        start_seconds: When it begins, in seconds of the recording.
        end_seconds: When it ends, in seconds of the recording.
        probability: Mean probability of its tokens.
    """

    text: str
    start_seconds: float
    end_seconds: float
    probability: float


@dataclass(frozen=True, kw_only=True)
class TranscribedSegment:
    """Part of a transcript; ``str()`` gives its text.

    Attributes:
        start_seconds: When it begins, in seconds of the recording.
        end_seconds: When it ends, in seconds of the recording.
        text: What was said.
        token_ids: Its tokens, timestamps among them.
        words: Its words, if they were asked for.
        temperature: Temperature at which it was decoded.
        mean_logprob: Mean log-probability of the tokens of its window.
        compression_ratio: How well its window's text can be compressed.
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
        probability: Its probability; 1 if it was given, and of an English-only model.
    """

    code: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class TranscriptionProgress:
    """How far a transcription is.

    Attributes:
        transcribed_seconds: Of the recording, transcribed.
        received_seconds: Of the recording, received and decoded.
    """

    transcribed_seconds: float
    received_seconds: float


@dataclass(frozen=True, kw_only=True, repr=False)
class Transcription:
    """A whole transcript; ``str()`` gives its text.

    Attributes:
        segments: Its segments, in order; none if nobody speaks.
        language: The language.
        request_id: Id of the request; also in the service's logs.
        model: Name of the model that served it.
        seed: Seed that was used: giving it again gives the same transcript.
        audio_seconds: How long the recording is.
        total_seconds: From the arrival at the service to the end.
        device_seconds: Time the device spent, shared with other requests.
        graphs: Which graphs were asked for and which served, in order of first use.
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

    @property
    def text(self) -> str:
        """The texts of all segments, joined."""
        return "".join(segment.text for segment in self.segments).strip()

    @property
    def real_time_factor(self) -> float:
        """Seconds that a second of the recording took."""
        return self.total_seconds / self.audio_seconds

    def __str__(self) -> str:
        """The text."""
        return self.text

    def __repr__(self) -> str:
        """One short line, whatever the length of the text."""
        text = self.text
        if len(text) > _REPR_TEXT:
            text = text[: _REPR_TEXT - 1] + "…"
        return (
            f"<Transcription {text!r}: {len(self.segments)} segments, {self.audio_seconds:.1f} s, "
            f"request {self.request_id}>"
        )

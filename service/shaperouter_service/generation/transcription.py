"""A request to transcribe, and its events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from shaperouter_service.generation.run_events import GraphUse, Stalled
from shaperouter_service.speech.audio.declared import DeclaredAudio
from shaperouter_service.speech.transcription.segments import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionRequest:
    """A request to transcribe a recording.

    Attributes:
        model: Name of the model; empty for the only one that transcribes.
        audio: Format of the recording.
        content: The recording, or its first piece.
        options: The options that were given, by name.
        step_seconds: Seconds after which an incomplete window is decoded again; None waits for
            whole windows.
    """

    model: str
    audio: DeclaredAudio
    content: bytes = field(repr=False)
    options: Mapping[str, Any]
    step_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """The spoken language.

    Attributes:
        code: Its code.
        probability: Its probability; 1 if it was given and not detected.
    """

    code: str
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a transcription.

    Attributes:
        transcribed: Seconds of the recording that are transcribed.
        received: Seconds of the recording that have been received.
    """

    transcribed: float
    received: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionCompletion:
    """The last event: the whole recording is transcribed.

    Attributes:
        request_id: Id of the request.
        model: Name of the model.
        revision: Revision of the model; see `ServedModel`.
        language: The spoken language.
        audio_seconds: Length of the recording.
        total_seconds: From the arrival of the request to its end.
        seed: Seed of the random numbers.
        graphs: The graphs that served it.
    """

    request_id: str
    model: str
    revision: str
    language: Language
    audio_seconds: float
    total_seconds: float
    seed: int
    graphs: Sequence[GraphUse]

    @property
    def device_seconds(self) -> float:
        """Device time of all calls that served it."""
        return sum(use.device_seconds for use in self.graphs)


TranscriptionEvent: TypeAlias = Stalled | Language | Segment | Progress | TranscriptionCompletion

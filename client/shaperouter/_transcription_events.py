"""Assembly of transcripts from messages, whole or event by event."""

from collections.abc import Callable, Iterable

from shaperouter import _convert
from shaperouter._signature import Signature
from shaperouter._stream_events import CompletedEvents
from shaperouter._transcription import (
    DetectedLanguage,
    TranscribedSegment,
    TranscribedWord,
    Transcription,
    TranscriptionProgress,
)
from shaperouter.v1 import transcription_pb2


class TranscriptionEvents(CompletedEvents[Transcription]):
    """Reads the events of one stream, in order.

    Not thread-safe: only one reader may feed it.

    Attributes:
        language: The language, once it is known.
    """

    def __init__(
        self,
        on_stall: Callable[[Signature], None] | None,
        on_progress: Callable[[TranscriptionProgress], None] | None,
    ) -> None:
        """Starts empty; the functions are called for each event of their kind."""
        super().__init__()
        self._on_stall, self._on_progress = on_stall, on_progress
        self._segments: list[TranscribedSegment] = []
        self.language: DetectedLanguage | None = None

    def add(self, event: transcription_pb2.TranscribeStreamResponse) -> TranscribedSegment | None:
        """Takes the next event and returns its segment, or None if it has none.

        Raises:
            InternalError: The event comes after the completion.
        """
        self._expect_more()
        match event.WhichOneof("event"):
            case "segment":
                self._segments.append(_segment(event.segment))
                return self._segments[-1]
            case "language":
                self.language = _language(event.language)
            case "stall" if self._on_stall is not None:
                self._on_stall(_convert.signature(event.stall.signature))
            case "progress" if self._on_progress is not None:
                self._on_progress(_convert.copy_fields(TranscriptionProgress, event.progress))
            case "completion":
                self._result = _transcription(self._segments, event.completion)
        return None  # also for events that this version does not know


def response(message: transcription_pb2.TranscribeResponse) -> Transcription:
    """The transcript of ``Transcribe``."""
    return _transcription(map(_segment, message.segments), message.completion)


def _transcription(
    segments: Iterable[TranscribedSegment], message: transcription_pb2.TranscriptionCompletion
) -> Transcription:
    return _convert.copy_fields(
        Transcription,
        message,
        segments=tuple(segments),
        language=_language(message.language),
        graphs=tuple(map(_convert.graph_use, message.graphs)),
    )


def _language(message: transcription_pb2.DetectedLanguage) -> DetectedLanguage:
    return _convert.copy_fields(DetectedLanguage, message)


def _segment(message: transcription_pb2.TranscribedSegment) -> TranscribedSegment:
    return _convert.copy_fields(
        TranscribedSegment,
        message,
        token_ids=tuple(message.token_ids),
        words=tuple(_convert.copy_fields(TranscribedWord, word) for word in message.words),
    )

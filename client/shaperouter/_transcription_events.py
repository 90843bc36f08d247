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
                progress = event.progress
                self._on_progress(
                    TranscriptionProgress(
                        transcribed_seconds=progress.transcribed_seconds,
                        received_seconds=progress.received_seconds,
                    )
                )
            case "completion":
                self._result = _transcription(self._segments, event.completion)
        return None  # also for events that this version does not know


def response(message: transcription_pb2.TranscribeResponse) -> Transcription:
    """The transcript of ``Transcribe``."""
    return _transcription(map(_segment, message.segments), message.completion)


def _transcription(
    segments: Iterable[TranscribedSegment], message: transcription_pb2.TranscriptionCompletion
) -> Transcription:
    return Transcription(
        segments=tuple(segments),
        language=_language(message.language),
        request_id=message.request_id,
        model=message.model,
        seed=message.seed,
        audio_seconds=message.audio_seconds,
        total_seconds=message.total_seconds,
        device_seconds=message.device_seconds,
        graphs=tuple(map(_convert.graph_use, message.graphs)),
    )


def _language(message: transcription_pb2.DetectedLanguage) -> DetectedLanguage:
    return DetectedLanguage(code=message.code, probability=message.probability)


def _segment(message: transcription_pb2.TranscribedSegment) -> TranscribedSegment:
    return TranscribedSegment(
        start_seconds=message.start_seconds,
        end_seconds=message.end_seconds,
        text=message.text,
        token_ids=tuple(message.token_ids),
        words=tuple(
            TranscribedWord(
                text=word.text,
                start_seconds=word.start_seconds,
                end_seconds=word.end_seconds,
                probability=word.probability,
            )
            for word in message.words
        ),
        temperature=message.temperature,
        mean_logprob=message.mean_logprob,
        compression_ratio=message.compression_ratio,
        no_speech_probability=message.no_speech_probability,
    )

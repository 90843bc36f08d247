"""Parts of transcripts as messages."""

from shaperouter.v1 import transcription_pb2
from shaperouter_service.serving.transcription.loop import Language, Progress
from shaperouter_service.speech.transcription import Segment


def segment_message(segment: Segment) -> transcription_pb2.TranscribedSegment:
    """The message of a segment."""
    return transcription_pb2.TranscribedSegment(
        start_seconds=segment.start,
        end_seconds=segment.end,
        text=segment.text,
        token_ids=segment.token_ids,
        words=[
            transcription_pb2.TranscribedWord(
                text=word.text,
                start_seconds=word.start,
                end_seconds=word.end,
                probability=word.probability,
            )
            for word in segment.words
        ],
        temperature=segment.temperature,
        mean_logprob=segment.mean_logprob,
        compression_ratio=segment.compression_ratio,
        no_speech_probability=segment.no_speech_probability,
    )


def language_message(language: Language) -> transcription_pb2.DetectedLanguage:
    """The message of a language."""
    return transcription_pb2.DetectedLanguage(code=language.code, probability=language.probability)


def progress_message(progress: Progress) -> transcription_pb2.TranscriptionProgress:
    """The message of a transcription's progress."""
    return transcription_pb2.TranscriptionProgress(
        transcribed_seconds=progress.transcribed, received_seconds=progress.received
    )

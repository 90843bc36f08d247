"""Transcripts in the formats of OpenAI's API."""

from collections.abc import Iterator
from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse, Response

from shaperouter_service.edge.http.openai.speech_requests import SEGMENT, WORD, SpeechRequest
from shaperouter_service.generation.transcription import (
    Progress,
    TranscriptionCompletion,
    TranscriptionEvent,
)
from shaperouter_service.speech.transcription import Segment, Task, language_names
from shaperouter_service.speech.transcription.languages import ENGLISH
from shaperouter_service.speech.transcription.segments import FRAMES_PER_SECOND


class Transcript:
    """A transcript, built from the events of a transcription.

    Attributes:
        segments: Its segments, each with the first frame of its window.
        completion: Everything else about it; None until the last event.
    """

    def __init__(self) -> None:
        """Starts without events."""
        self.segments: list[tuple[int, Segment]] = []
        self.completion: TranscriptionCompletion | None = None
        self._texts: list[str] = []
        # A window begins where the transcript of the last one ends.
        self._window = 0

    @property
    def text(self) -> str:
        """The texts of all segments, joined, without the space before the first word."""
        return "".join(self._texts)

    def add(self, event: TranscriptionEvent) -> str:
        """Adds an event; returns what it adds to the text."""
        match event:
            case Segment():
                self.segments.append((self._window, event))
                text = event.text if self._texts else event.text.lstrip()
                if text:
                    self._texts.append(text)
                return text
            case Progress():
                self._window = round(event.transcribed * FRAMES_PER_SECOND)
            case TranscriptionCompletion():
                self.completion = event
        return ""


def transcript_response(transcript: Transcript, asked: SpeechRequest) -> Response:
    """The answer with a whole transcript, in the format that was asked for."""
    match asked.response_format:
        case "text":
            return PlainTextResponse(transcript.text + "\n")
        case "srt":
            return PlainTextResponse("".join(_srt(transcript)))
        case "vtt":
            return PlainTextResponse("".join(_vtt(transcript)))
        case "verbose_json":
            return JSONResponse(_verbose(transcript, asked))
    return JSONResponse({"text": transcript.text, "usage": _usage(transcript)})


def _srt(transcript: Transcript) -> Iterator[str]:
    """Cues as openai/whisper writes them."""
    for number, (_, segment) in enumerate(transcript.segments, 1):
        start, end = (_srt_time(seconds) for seconds in (segment.start, segment.end))
        yield f"{number}\n{start} --> {end}\n{_cue(segment)}\n\n"


def _vtt(transcript: Transcript) -> Iterator[str]:
    """Likewise; hours are left out if there are none."""
    yield "WEBVTT\n\n"
    for _, segment in transcript.segments:
        start, end = (_vtt_time(seconds) for seconds in (segment.start, segment.end))
        yield f"{start} --> {end}\n{_cue(segment)}\n\n"


def _srt_time(seconds: float) -> str:
    hours, minutes, rest, thousandths = _parts(seconds)
    return f"{hours:02}:{minutes:02}:{rest:02},{thousandths:03}"


def _vtt_time(seconds: float) -> str:
    hours, minutes, rest, thousandths = _parts(seconds)
    return f"{f'{hours:02}:' if hours else ''}{minutes:02}:{rest:02}.{thousandths:03}"


def _parts(seconds: float) -> tuple[int, int, int, int]:
    """Hours, minutes, seconds and thousandths."""
    whole, thousandths = divmod(round(1000 * seconds), 1000)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return hours, minutes, rest, thousandths


def _cue(segment: Segment) -> str:
    # An arrow separates the times of a cue.
    return segment.text.strip().replace("-->", "->")


def _verbose(transcript: Transcript, asked: SpeechRequest) -> dict[str, Any]:
    completion = _completed(transcript)
    code = ENGLISH if asked.task is Task.TRANSLATE else completion.language.code
    body: dict[str, Any] = {
        "task": str(asked.task),
        "language": language_names().get(code, code),
        "duration": completion.audio_seconds,
        "text": transcript.text,
    }
    if SEGMENT in asked.granularities:
        body["segments"] = [
            {
                "id": index,
                "seek": window,
                "start": segment.start,
                "end": segment.end,
                "text": segment.text,
                "tokens": list(segment.token_ids),
                "temperature": segment.temperature,
                "avg_logprob": max(segment.mean_logprob, -9999.0),
                "compression_ratio": segment.compression_ratio,
                "no_speech_prob": segment.no_speech_probability,
            }
            for index, (window, segment) in enumerate(transcript.segments)
        ]
    if WORD in asked.granularities:
        body["words"] = [
            {"word": word.text.strip(), "start": word.start, "end": word.end}
            for _, segment in transcript.segments
            for word in segment.words
        ]
    return body | {"usage": _usage(transcript)}


def _usage(transcript: Transcript) -> dict[str, Any]:
    return {"type": "duration", "seconds": _completed(transcript).audio_seconds}


def _completed(transcript: Transcript) -> TranscriptionCompletion:
    if transcript.completion is None:
        raise TypeError("a whole transcript ends with a completion")
    return transcript.completion

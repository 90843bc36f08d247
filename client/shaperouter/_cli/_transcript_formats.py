"""Transcripts as text and as subtitles, segment by segment."""

import enum
from collections.abc import Callable, Iterator, Mapping

from shaperouter._transcription import TranscribedSegment


class TranscriptFormat(enum.StrEnum):
    """The formats of a transcript."""

    TEXT = "text"
    JSON = "json"
    SRT = "srt"
    VTT = "vtt"


def as_text(number: int, segment: TranscribedSegment) -> str:
    """A line of text."""
    del number
    return segment.text.strip()


def as_words(number: int, segment: TranscribedSegment) -> str:
    """A line for each word, with its start and end in seconds before it."""
    del number
    return "\n".join(
        f"{word.start_seconds:9.2f} {word.end_seconds:9.2f}  {word.text.strip()}"
        for word in segment.words
    )


def as_srt(number: int, segment: TranscribedSegment) -> str:
    """A subtitle of SubRip, with the empty line that ends it."""
    start, end = (_time(seconds, mark=",") for seconds in _span(segment))
    return f"{number}\n{start} --> {end}\n{_caption(segment.text)}\n"


def as_vtt(number: int, segment: TranscribedSegment) -> str:
    """A cue of WebVTT, with the times of its words if known, and the empty line that ends it."""
    del number
    start, end = (_time(seconds, mark=".") for seconds in _span(segment))
    text = "".join(_timed_words(segment)) if segment.words else _escaped(_caption(segment.text))
    return f"{start} --> {end}\n{text}\n"


# Text before the first segment.
HEADINGS: Mapping[TranscriptFormat, str] = {TranscriptFormat.VTT: "WEBVTT\n"}

# Functions that format a segment, given its number from 1. JSON prints the whole transcript.
WRITERS: Mapping[TranscriptFormat, Callable[[int, TranscribedSegment], str]] = {
    TranscriptFormat.TEXT: as_text,
    TranscriptFormat.SRT: as_srt,
    TranscriptFormat.VTT: as_vtt,
}


def _span(segment: TranscribedSegment) -> tuple[float, float]:
    return segment.start_seconds, segment.end_seconds


def _timed_words(segment: TranscribedSegment) -> Iterator[str]:
    """Words, each with its start time before it.

    Times in a cue must ascend and lie within it; a time that does not is left out.
    """
    last, end = (_milliseconds(seconds) for seconds in _span(segment))
    for index, word in enumerate(segment.words):
        text = " ".join(word.text.split("\n"))
        begin = _milliseconds(word.start_seconds)
        if last < begin < end:
            last = begin
            yield f"<{_time(word.start_seconds, mark='.')}>"
        yield _escaped(_without_arrows(text if index else text.lstrip()))


def _escaped(text: str) -> str:
    """Escapes text for WebVTT, where it could begin a tag or a character reference."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _caption(text: str) -> str:
    # An empty line would end the subtitle.
    lines = _without_arrows(text).split("\n")
    return "\n".join(line.strip() for line in lines if line.strip())


def _without_arrows(text: str) -> str:
    # An arrow would be read as part of a time.
    return text.replace("-->", "->")


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)


def _time(seconds: float, *, mark: str) -> str:
    """Hours, minutes and seconds."""
    minutes, milliseconds = divmod(_milliseconds(seconds), 60_000)
    hours, minutes = divmod(minutes, 60)
    whole, milliseconds = divmod(milliseconds, 1000)
    return f"{hours:02}:{minutes:02}:{whole:02}{mark}{milliseconds:03}"

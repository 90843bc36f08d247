"""Segments: what a window's tokens say, and when."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from shaperouter_service.transcription.tokens import SECONDS_PER_TIMESTAMP, TranscriptTokens

# Frames of a spectrogram, of which a timestamp's step has two.
FRAMES_PER_SECOND = 100
FRAMES_PER_TIMESTAMP = round(SECONDS_PER_TIMESTAMP * FRAMES_PER_SECOND)


@dataclass(frozen=True, kw_only=True)
class Word:
    """A word, with the punctuation and the space that belong to it.

    Attributes:
        text: As it stands in its segment's text.
        start: When it begins, in seconds of the recording.
        end: When it ends.
        probability: Mean of its tokens'.
    """

    text: str
    start: float
    end: float
    probability: float


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Part of a transcript.

    Attributes:
        start: When it begins, in seconds of the recording.
        end: When it ends.
        token_ids: Its tokens, timestamps among them.
        text: What it says.
        temperature: At which it was decoded.
        mean_logprob: Of a token of its window.
        compression_ratio: Of its window's text.
        no_speech_probability: Of its window.
        words: If they were asked for.
    """

    start: float
    end: float
    token_ids: Sequence[int]
    text: str
    temperature: float
    mean_logprob: float
    compression_ratio: float
    no_speech_probability: float
    words: Sequence[Word] = ()


@dataclass(frozen=True, kw_only=True)
class Span:
    """Tokens of a window between two timestamps.

    Attributes:
        start: When it begins, in frames of the recording.
        end: When it ends.
        token_ids: Timestamps among them.
    """

    start: int
    end: int
    token_ids: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class Division:
    """The tokens of a window, taken apart.

    Attributes:
        spans: In order.
        next_frame: Where the next window begins.
        reaches_end: Whether the tokens are of the window to its end: nothing is said behind the
            last timestamp, or there is no telling where something ended.
    """

    spans: Sequence[Span]
    next_frame: int
    reaches_end: bool


def divide(
    token_ids: Sequence[int], tokens: TranscriptTokens, *, first_frame: int, frames: int
) -> Division:
    """Takes the tokens of a window apart where two timestamps meet.

    What is behind the last such pair is cut off by the window's end: the next window begins there.
    Tokens without any pair are one span. Its times are those of the first and the last timestamp,
    as in Transformers; openai/whisper lets it begin with the window, whatever the first one says.

    Args:
        token_ids: New ones, without the end token.
        tokens: Of the model.
        first_frame: Of the window.
        frames: Of the recording in the window.
    """

    def frame(timestamp: int) -> int:
        return first_frame + FRAMES_PER_TIMESTAMP * tokens.steps(timestamp)

    window_end = first_frame + frames
    places = [place for place, token in enumerate(token_ids) if tokens.is_timestamp(token)]
    # Where the second of a pair stands.
    cuts = [second for first, second in pairwise(places) if second == first + 1]
    if not cuts:
        times = [frame(token_ids[place]) for place in places]
        span = Span(
            start=times[0] if times else first_frame,
            end=times[-1] if len(times) > 1 else window_end,
            token_ids=token_ids,
        )
        return Division(spans=[span], next_frame=window_end, reaches_end=True)
    last = len(token_ids) - 1
    ends_with_one = places[-1] == last and cuts[-1] != last
    if ends_with_one:
        cuts.append(len(token_ids))
    spans = [
        Span(
            # Only a model that was not held to the rules begins without a timestamp.
            start=frame(token_ids[start]) if start in places else first_frame,
            end=frame(token_ids[end - 1]),
            token_ids=token_ids[start:end],
        )
        for start, end in pairwise([0, *cuts])
    ]
    # Likewise, only such a model ends where it began.
    stuck = spans[-1].end <= first_frame
    return Division(
        spans=spans,
        next_frame=window_end if ends_with_one or stuck else spans[-1].end,
        reaches_end=ends_with_one,
    )

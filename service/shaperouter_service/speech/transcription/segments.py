"""Segments: the parts of a window's transcript with their times."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from shaperouter_service.speech.transcription.tokens import SECONDS_PER_TIMESTAMP, TranscriptTokens

# Frames of a spectrogram. A timestamp's step has two.
FRAMES_PER_SECOND = 100
FRAMES_PER_TIMESTAMP = round(SECONDS_PER_TIMESTAMP * FRAMES_PER_SECOND)


@dataclass(frozen=True, kw_only=True)
class Word:
    """A word, with its punctuation and space.

    Attributes:
        text: The word as in its segment's text.
        start: Start time in the recording, in seconds.
        end: End time in the recording, in seconds.
        probability: Mean probability of its tokens.
    """

    text: str
    start: float
    end: float
    probability: float


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A part of a recording's transcript.

    Attributes:
        start: Start time in the recording, in seconds.
        end: End time in the recording, in seconds.
        token_ids: Its tokens, including timestamps.
        text: Its text.
        temperature: The temperature at which it was decoded.
        mean_logprob: Mean log-probability of the tokens of its window.
        compression_ratio: Compression ratio of its window's text.
        no_speech_probability: Probability that nobody speaks in its window.
        words: Its words, if requested.
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
        start: Start, in frames of the recording.
        end: End, in frames of the recording.
        token_ids: Its tokens, including timestamps.
    """

    start: int
    end: int
    token_ids: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class Division:
    """The tokens of a window, divided into spans.

    Attributes:
        spans: The spans, in order.
        next_frame: Where the next window begins.
        reaches_end: Whether the tokens cover the window to its end: there is no speech after the
            last timestamp, or the end of speech cannot be found.
    """

    spans: Sequence[Span]
    next_frame: int
    reaches_end: bool


def divide(
    token_ids: Sequence[int], tokens: TranscriptTokens, *, first_frame: int, frames: int
) -> Division:
    """Divides the tokens of a window where two timestamps meet.

    The window's end cuts off what follows the last such pair, so the next window begins there.
    Tokens without any pair are one span. Its times are the first and the last timestamp, as in
    Transformers; openai/whisper starts it with the window, whatever the first timestamp.

    Args:
        token_ids: New tokens, without the end token.
        tokens: Special tokens of the model.
        first_frame: First frame of the window.
        frames: Frames of the recording in the window.
    """

    def frame(timestamp: int) -> int:
        return first_frame + FRAMES_PER_TIMESTAMP * tokens.steps(timestamp)

    window_end = first_frame + frames
    places = [place for place, token in enumerate(token_ids) if tokens.is_timestamp(token)]
    # Indices of the second timestamps of pairs.
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

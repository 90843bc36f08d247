"""Segments and words of a transcript, and the timestamps that separate segments."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from shaperouter_service.speech.audio.spectrum import HOP_SAMPLES, SAMPLE_RATE
from shaperouter_service.speech.transcription.tokens import SECONDS_PER_TIMESTAMP, TranscriptTokens

FRAMES_PER_SECOND = SAMPLE_RATE // HOP_SAMPLES
# A timestamp's step has two frames.
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
class SplitWindow:
    """The tokens of a window, split into spans.

    Attributes:
        spans: The spans, in order.
        next_frame: First frame of the next window.
        reaches_end: Whether the tokens cover the window to its end: no speech follows the last
            timestamp, or no timestamp says where speech ends.
    """

    spans: Sequence[Span]
    next_frame: int
    reaches_end: bool


def split_at_timestamps(
    token_ids: Sequence[int], tokens: TranscriptTokens, *, first_frame: int, frames: int
) -> SplitWindow:
    """Splits the tokens of a window at each pair of adjacent timestamps.

    The end of the window cuts off the speech after the last pair, so the next window begins there.
    Tokens without a pair are one span, from the first to the last timestamp, as in Transformers;
    openai/whisper starts it at the beginning of the window, and so does this if the only timestamp
    is not before the window's end.

    Args:
        token_ids: New tokens, without the end token.
        tokens: Special tokens of the model.
        first_frame: First frame of the window.
        frames: Frames of the recording in the window.
    """

    def frame(timestamp: int) -> int:
        return first_frame + FRAMES_PER_TIMESTAMP * tokens.steps(timestamp)

    window_end = first_frame + frames
    timestamps = [index for index, token in enumerate(token_ids) if tokens.is_timestamp(token)]
    # Indices of the second timestamps of pairs.
    cuts = [second for first, second in pairwise(timestamps) if second == first + 1]
    if not cuts:
        times = [frame(token_ids[index]) for index in timestamps]
        span = Span(
            start=times[0] if times and times[0] < window_end else first_frame,
            end=times[-1] if len(times) > 1 else window_end,
            token_ids=token_ids,
        )
        return SplitWindow(spans=[span], next_frame=window_end, reaches_end=True)
    last = len(token_ids) - 1
    ends_with_single = timestamps[-1] == last and cuts[-1] != last
    if ends_with_single:
        cuts.append(len(token_ids))
    spans = [
        Span(
            # Only a transcript that breaks the rules begins without a timestamp.
            start=frame(token_ids[start]) if start in timestamps else first_frame,
            end=frame(token_ids[end - 1]),
            token_ids=token_ids[start:end],
        )
        for start, end in pairwise([0, *cuts])
    ]
    # Likewise, only such a transcript ends where its window begins.
    is_stuck = spans[-1].end <= first_frame
    return SplitWindow(
        spans=spans,
        next_frame=window_end if ends_with_single or is_stuck else spans[-1].end,
        reaches_end=ends_with_single,
    )

"""Words: their tokens and times."""

import statistics
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shaperouter_service.speech.transcription.segments import Word
from shaperouter_service.speech.transcription.tokens import SECONDS_PER_TIMESTAMP

Decode = Callable[[Sequence[int]], str]

# Languages written without spaces between words: Chinese, Japanese, Thai, Lao, Burmese, Cantonese.
WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
# A tokenizer's text for part of a character.
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

# Punctuation that belongs to the following word, and to the previous one.
OPENING = "\"'“¿([{-"
CLOSING = "\"'.。,，!！?？:：”)]}、"
SENTENCE_ENDS = ".。!！?？"

# Maximum of the median duration of words, in seconds.
MAX_MEDIAN = 0.7
# Minimum length of a pause, in medians.
PAUSE = 4
# How far a word may extend beyond its segment, in seconds.
SLACK = 0.5


@dataclass(frozen=True, kw_only=True)
class TimedWord:
    """A word of a window.

    Attributes:
        text: The word with its spaces and, once merged, its punctuation.
        token_ids: Its tokens.
        start: Start time in the window, in seconds.
        end: End time in the window, in seconds.
        probability: Mean probability of its tokens.
    """

    text: str
    token_ids: Sequence[int]
    start: float
    end: float
    probability: float


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The pace of speech in a window, in seconds.

    Attributes:
        median: Median duration of the words, at most MAX_MEDIAN.
    """

    median: float

    @property
    def max_duration(self) -> float:
        """Maximum duration of a word beside a pause."""
        return 2 * self.median


def split_words(
    token_ids: Sequence[int], decode: Decode, language: str | None
) -> list[tuple[str, Sequence[int]]]:
    """Splits text into words and punctuation.

    Args:
        token_ids: Tokens of text only.
        decode: Converts tokens to text.
        language: Code of the text's language; None for an English-only model.

    Returns:
        Each word's text and tokens.
    """
    characters = list(_split_characters(token_ids, decode))
    if language in WITHOUT_SPACES:
        return characters
    words: list[tuple[str, Sequence[int]]] = []
    for text, ids in characters:
        # As in openai/whisper, any substring of the string of all marks is punctuation.
        stands_alone = text.startswith(" ") or text.strip() in string.punctuation
        if stands_alone or not words:
            words.append((text, ids))
        else:
            before, before_ids = words[-1]
            words[-1] = (before + text, [*before_ids, *ids])
    return words


def _split_characters(
    token_ids: Sequence[int], decode: Decode
) -> Iterator[tuple[str, Sequence[int]]]:
    """The shortest sequences of tokens that contain only whole characters."""
    whole = decode(token_ids)
    offset = 0
    run: list[int] = []
    for token in token_ids:
        run.append(token)
        text = decode(run)
        # The text itself may contain a replacement character.
        index = text.find(REPLACEMENT)
        if index < 0 or whole[offset + index : offset + index + 1] == REPLACEMENT:
            yield text, run
            offset += len(text)
            run = []
    if run:
        yield decode(run), run


def time_words(
    words: Sequence[tuple[str, Sequence[int]]],
    *,
    positions: Sequence[int] | np.ndarray,
    logprobs: Sequence[float] | np.ndarray,
) -> list[TimedWord]:
    """Computes the times of words.

    Args:
        words: Texts and tokens; N tokens in all.
        positions: [N + 1], where the words' tokens and the end token begin; see
            `alignment.token_positions`.
        logprobs: [N], log-probabilities of the words' tokens.
    """
    times = np.asarray(positions) * SECONDS_PER_TIMESTAMP
    probabilities = np.exp(logprobs)
    timed = []
    first = 0
    for text, token_ids in words:
        end = first + len(token_ids)
        timed.append(
            TimedWord(
                text=text,
                token_ids=token_ids,
                start=float(times[first]),
                end=float(times[end]),
                probability=float(probabilities[first:end].mean()),
            )
        )
        first = end
    return timed


def measure_pace(words: Iterable[TimedWord]) -> Pace:
    """Computes the pace of a window from its words."""
    durations = [word.end - word.start for word in words if word.end != word.start]
    return Pace(median=min(MAX_MEDIAN, statistics.median(durations)) if durations else 0.0)


def shorten_at_sentence_ends(words: Sequence[TimedWord], pace: Pace) -> list[TimedWord]:
    """Removes pauses between sentences from the words beside them."""
    result = list(words)
    for index in range(1, len(result)):
        before, word = result[index - 1], result[index]
        if word.end - word.start <= pace.max_duration or not pace.median:
            continue
        if word.text in SENTENCE_ENDS:
            result[index] = replace(word, end=word.start + pace.max_duration)
        elif before.text in SENTENCE_ENDS:
            result[index] = replace(word, start=word.end - pace.max_duration)
    return result


def merge_punctuation(words: Sequence[TimedWord]) -> list[TimedWord]:
    """Merges punctuation into its words, whose times and probabilities do not change."""
    opened: list[TimedWord] = []
    for word in reversed(words):
        opens = word.text.startswith(" ") and word.text.strip() in OPENING
        if opens and opened:
            opened[-1] = _join(opened[-1], word, opened[-1])
        else:
            opened.append(word)
    closed: list[TimedWord] = []
    for word in reversed(opened):
        if closed and not closed[-1].text.endswith(" ") and word.text in CLOSING:
            closed[-1] = _join(closed[-1], closed[-1], word)
        else:
            closed.append(word)
    return closed


def _join(timed: TimedWord, first: TimedWord, second: TimedWord) -> TimedWord:
    return replace(
        timed, text=first.text + second.text, token_ids=[*first.token_ids, *second.token_ids]
    )


def words_of_segments(
    words: Sequence[TimedWord], text_tokens: Sequence[int], offset: float
) -> list[list[Word]]:
    """Assigns the words of a window to its segments.

    Args:
        words: The words, in order.
        text_tokens: Number of text tokens of each segment.
        offset: Start of the window in the recording, in seconds.
    """
    remaining = list(reversed(words))
    segments = []
    for count in text_tokens:
        segment: list[Word] = []
        taken = 0
        while remaining and taken < count:
            word = remaining.pop()
            taken += len(word.token_ids)
            segment.append(
                Word(
                    text=word.text,
                    start=round(offset + word.start, 2),
                    end=round(offset + word.end, 2),
                    probability=word.probability,
                )
            )
        segments.append(segment)
    return segments


def fit_to_segment(
    words: Sequence[Word], *, start: float, end: float, last_end: float, pace: Pace
) -> tuple[list[Word], float, float]:
    """Reconciles the times of a segment with those of its words.

    Attention is least certain beside pauses, so words there are shortened if they are too long.

    Args:
        words: Words of the segment; at least one.
        start: Start of the segment by its timestamp, in seconds.
        end: End of the segment by its timestamp, in seconds.
        last_end: End of the previous word, in seconds.
        pace: Pace of the window.

    Returns:
        The words, and the segment's start and end.
    """
    first, *rest = words
    second = rest[0] if rest else None
    if first.end - last_end > PAUSE * pace.median and (
        first.end - first.start > pace.max_duration
        or (second is not None and second.end - first.start > 2 * pace.max_duration)
    ):
        if second is not None and second.end - second.start > pace.max_duration:
            boundary = max(second.end / 2, second.end - pace.max_duration)
            first = replace(first, end=boundary)
            rest[0] = replace(second, start=boundary)
        first = replace(first, start=max(0.0, first.end - pace.max_duration))
    if start < first.end and start - SLACK > first.start:
        first = replace(first, start=max(0.0, min(first.end - pace.median, start)))
    else:
        start = first.start

    result = [first, *rest]
    last = result[-1]
    if end > last.start and end + SLACK < last.end:
        result[-1] = replace(last, end=max(last.start + pace.median, end))
    else:
        end = last.end
    return result, start, end

"""Words: which tokens they are made of, and when they were said."""

import statistics
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shaperouter_service.transcription.segments import Word
from shaperouter_service.transcription.tokens import SECONDS_PER_TIMESTAMP

Decode = Callable[[Sequence[int]], str]

# Written without spaces between words: Chinese, Japanese, Thai, Lao, Burmese and Cantonese.
WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
# What a tokenizer decodes part of a character to.
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

# Marks that belong to the word behind them, and to the word before them.
OPENING = "\"'“¿([{-"
CLOSING = "\"'.。,，!！?？:：”)]}、"
SENTENCE_ENDS = ".。!！?？"

# A word takes twice the median at most, and of the median no more than this counts, in seconds.
LONGEST_MEDIAN = 0.7
# A pause: so many medians.
PAUSE = 4
# How far a word may reach beyond its segment, in seconds.
SLACK = 0.5


@dataclass(frozen=True, kw_only=True)
class TimedWord:
    """A word of a window.

    Attributes:
        text: With its spaces and, once merged, its punctuation.
        token_ids: Its tokens.
        start: In seconds of the window.
        end: Likewise.
        probability: Mean of its tokens'.
    """

    text: str
    token_ids: Sequence[int]
    start: float
    end: float
    probability: float


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How fast is spoken in a window, in seconds.

    Attributes:
        median: Of the words' durations, at most LONGEST_MEDIAN.
    """

    median: float

    @property
    def longest(self) -> float:
        """What a word takes at most, where something speaks against a longer one."""
        return 2 * self.median


def split_words(
    token_ids: Sequence[int], decode: Decode, language: str | None
) -> list[tuple[str, Sequence[int]]]:
    """Takes text apart into words and single marks.

    Args:
        token_ids: Of text alone.
        decode: Turns tokens into text.
        language: Code of the text's; None of an English-only model.

    Returns:
        Each word's text and tokens.
    """
    characters = list(_split_characters(token_ids, decode))
    if language in WITHOUT_SPACES:
        return characters
    words: list[tuple[str, Sequence[int]]] = []
    for text, ids in characters:
        # As in openai/whisper, whatever is part of the row of all marks is punctuation.
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
    """The shortest runs of tokens that have no part of a character."""
    whole = decode(token_ids)
    offset = 0
    run: list[int] = []
    for token in token_ids:
        run.append(token)
        text = decode(run)
        # A replacement character may be in the text itself.
        at = text.find(REPLACEMENT)
        if at < 0 or whole[offset + at : offset + at + 1] == REPLACEMENT:
            yield text, run
            offset += len(text)
            run = []
    if run:
        yield decode(run), run


def time_words(
    words: Sequence[tuple[str, Sequence[int]]],
    *,
    places: Sequence[int] | np.ndarray,
    logprobs: Sequence[float] | np.ndarray,
) -> list[TimedWord]:
    """Tells when words were said.

    Args:
        words: Texts and tokens; N tokens in all.
        places: [N + 1], where the words' tokens and the end token begin; see
            `alignment.token_places`.
        logprobs: [N], of the words' tokens.
    """
    times = np.asarray(places) * SECONDS_PER_TIMESTAMP
    probabilities = np.exp(logprobs)
    timed = []
    first = 0
    for text, token_ids in words:
        behind = first + len(token_ids)
        timed.append(
            TimedWord(
                text=text,
                token_ids=token_ids,
                start=float(times[first]),
                end=float(times[behind]),
                probability=float(probabilities[first:behind].mean()),
            )
        )
        first = behind
    return timed


def pace(words: Iterable[TimedWord]) -> Pace:
    """How fast the words are spoken."""
    durations = [word.end - word.start for word in words if word.end != word.start]
    return Pace(median=min(LONGEST_MEDIAN, statistics.median(durations)) if durations else 0.0)


def shorten_at_sentence_ends(words: Sequence[TimedWord], pace: Pace) -> list[TimedWord]:
    """Takes pauses between sentences away from the words beside them."""
    result = list(words)
    for index in range(1, len(result)):
        before, word = result[index - 1], result[index]
        if word.end - word.start <= pace.longest or not pace.median:
            continue
        if word.text in SENTENCE_ENDS:
            result[index] = replace(word, end=word.start + pace.longest)
        elif before.text in SENTENCE_ENDS:
            result[index] = replace(word, start=word.end - pace.longest)
    return result


def merge_punctuation(words: Sequence[TimedWord]) -> list[TimedWord]:
    """Gives marks to the words that they belong to; a word's times and probability stay its own."""
    opened: list[TimedWord] = []
    for word in reversed(words):
        opens = word.text.startswith(" ") and word.text.strip() in OPENING
        if opens and opened:
            opened[-1] = _joined(opened[-1], word, opened[-1])
        else:
            opened.append(word)
    closed: list[TimedWord] = []
    for word in reversed(opened):
        if closed and not closed[-1].text.endswith(" ") and word.text in CLOSING:
            closed[-1] = _joined(closed[-1], closed[-1], word)
        else:
            closed.append(word)
    return closed


def _joined(timed: TimedWord, first: TimedWord, second: TimedWord) -> TimedWord:
    return replace(
        timed, text=first.text + second.text, token_ids=[*first.token_ids, *second.token_ids]
    )


def words_of_segments(
    words: Sequence[TimedWord], text_tokens: Sequence[int], offset: float
) -> list[list[Word]]:
    """Deals the words of a window out to its segments.

    Args:
        words: In order.
        text_tokens: How many tokens of text each segment has.
        offset: When the window begins, in seconds of the recording.
    """
    left = list(reversed(words))
    dealt = []
    for count in text_tokens:
        mine: list[Word] = []
        taken = 0
        while left and taken < count:
            word = left.pop()
            taken += len(word.token_ids)
            mine.append(
                Word(
                    text=word.text,
                    start=round(offset + word.start, 2),
                    end=round(offset + word.end, 2),
                    probability=word.probability,
                )
            )
        dealt.append(mine)
    return dealt


def fit(
    words: Sequence[Word], *, start: float, end: float, last_end: float, pace: Pace
) -> tuple[list[Word], float, float]:
    """Brings the words of a segment and the segment's times into agreement.

    Attention is least certain beside pauses: there, words that are too long are shortened.

    Args:
        words: Of the segment; at least one.
        start: When it begins by its timestamp, in seconds.
        end: When it ends.
        last_end: When the last word before ended.
        pace: Of the window.

    Returns:
        The words, and when the segment begins and ends.
    """
    first, *rest = words
    second = rest[0] if rest else None
    if first.end - last_end > PAUSE * pace.median and (
        first.end - first.start > pace.longest
        or (second is not None and second.end - first.start > 2 * pace.longest)
    ):
        if second is not None and second.end - second.start > pace.longest:
            boundary = max(second.end / 2, second.end - pace.longest)
            first = replace(first, end=boundary)
            rest[0] = replace(second, start=boundary)
        first = replace(first, start=max(0.0, first.end - pace.longest))
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

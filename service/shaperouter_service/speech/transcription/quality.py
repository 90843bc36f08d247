"""Quality checks that decide whether a transcript is kept or decoded again."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """One transcript of a window.

    Attributes:
        token_ids: New tokens, without the end token.
        sum_logprob: Sum of the log-probabilities of these and of the end token at temperature 1,
            among the tokens that the rules of transcripts allow.
        text: The text of the tokens.
        no_speech_probability: Probability that nobody speaks in the window; the same for all its
            transcripts.
    """

    token_ids: Sequence[int]
    sum_logprob: float
    text: str
    no_speech_probability: float

    @property
    def mean_logprob(self) -> float:
        """Mean log-probability of a token, including the end token."""
        return self.sum_logprob / (len(self.token_ids) + 1)

    @property
    def rank(self) -> float:
        """Score for comparing candidates: as in openai/whisper, a mean without the end token."""
        return self.sum_logprob / max(1, len(self.token_ids))

    @property
    def compression_ratio(self) -> float:
        """Size of the text divided by its size compressed with zlib: a measure of repetition."""
        data = self.text.strip().encode()
        return len(data) / len(zlib.compress(data))


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Limits of an acceptable transcript; None means no limit.

    Attributes:
        compression_ratio: A transcript above it is repetitive.
        mean_logprob: A transcript below it is improbable.
        no_speech_probability: An improbable transcript above it is no speech.
    """

    compression_ratio: float | None = 2.4
    mean_logprob: float | None = -1.0
    no_speech_probability: float | None = 0.6


class Verdict(Enum):
    """What to do with a transcript."""

    ACCEPT = auto()
    # The window has no speech.
    SKIP = auto()
    # The window is decoded again at a higher temperature.
    RETRY = auto()


def assess(decoded: Decoded, thresholds: Thresholds) -> Verdict:
    """Decides what to do with a transcript while its window can be decoded again."""
    if is_no_speech(decoded, thresholds):
        return Verdict.SKIP
    if is_repetitive(decoded, thresholds) or _is_improbable(decoded, thresholds):
        return Verdict.RETRY
    return Verdict.ACCEPT


def is_no_speech(decoded: Decoded, thresholds: Thresholds) -> bool:
    """Whether nobody speaks: no speech is likely, and the transcript is improbable."""
    limit = thresholds.no_speech_probability
    if limit is None or decoded.no_speech_probability <= limit:
        return False
    return thresholds.mean_logprob is None or _is_improbable(decoded, thresholds)


def is_repetitive(decoded: Decoded, thresholds: Thresholds) -> bool:
    """Whether the text's compression ratio is too high."""
    limit = thresholds.compression_ratio
    return limit is not None and decoded.compression_ratio > limit


def _is_improbable(decoded: Decoded, thresholds: Thresholds) -> bool:
    limit = thresholds.mean_logprob
    return limit is not None and decoded.mean_logprob < limit

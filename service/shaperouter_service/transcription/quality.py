"""Whether what was decoded is worth having, or is to be decoded again."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """One transcript of a window.

    Attributes:
        token_ids: New ones, without the end token.
        sum_logprob: Sum of the log-probabilities of these and of the end token, among what the
            rules of transcripts allow, whatever the temperature.
        text: What the tokens say.
        no_speech_probability: That nobody speaks; of the window, so all transcripts of one have the
            same.
    """

    token_ids: Sequence[int]
    sum_logprob: float
    text: str
    no_speech_probability: float

    @property
    def mean_logprob(self) -> float:
        """Mean log-probability of a token, the end token among them."""
        return self.sum_logprob / (len(self.token_ids) + 1)

    @property
    def rank(self) -> float:
        """By which candidates compare: as in openai/whisper, a mean without the end token."""
        return self.sum_logprob / max(1, len(self.token_ids))

    @property
    def compression_ratio(self) -> float:
        """How many times smaller zlib makes the text: a measure of repetition."""
        data = self.text.strip().encode()
        return len(data) / len(zlib.compress(data))


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Beyond which a transcript is not trusted; None is no limit.

    Attributes:
        compression_ratio: Above it, the text repeats itself.
        mean_logprob: Below it, the text is improbable.
        no_speech_probability: Above it, an improbable text is silence.
    """

    compression_ratio: float | None = 2.4
    mean_logprob: float | None = -1.0
    no_speech_probability: float | None = 0.6


class Verdict(Enum):
    """What becomes of a transcript."""

    TAKE = auto()
    # Nobody speaks in the window.
    SKIP = auto()
    # It is to be decoded again, at a higher temperature.
    RETRY = auto()


def judge(decoded: Decoded, thresholds: Thresholds) -> Verdict:
    """Judges a transcript that can be decoded again."""
    if is_silence(decoded, thresholds):
        return Verdict.SKIP
    if repeats_itself(decoded, thresholds) or _is_improbable(decoded, thresholds):
        return Verdict.RETRY
    return Verdict.TAKE


def is_silence(decoded: Decoded, thresholds: Thresholds) -> bool:
    """Whether nobody speaks: silence is likely, and what was heard is not."""
    limit = thresholds.no_speech_probability
    if limit is None or decoded.no_speech_probability <= limit:
        return False
    return thresholds.mean_logprob is None or _is_improbable(decoded, thresholds)


def repeats_itself(decoded: Decoded, thresholds: Thresholds) -> bool:
    """Whether the text can be compressed too well."""
    limit = thresholds.compression_ratio
    return limit is not None and decoded.compression_ratio > limit


def _is_improbable(decoded: Decoded, thresholds: Thresholds) -> bool:
    limit = thresholds.mean_logprob
    return limit is not None and decoded.mean_logprob < limit

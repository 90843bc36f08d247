"""Transcripts that repeat themselves or are improbable are decoded again, silence is skipped."""

from __future__ import annotations

import pytest

from shaperouter_service.speech.transcription import Decoded, Thresholds
from shaperouter_service.speech.transcription.quality import Verdict, assess

SENTENCE = "The quick brown fox jumps over the lazy dog."


def decoded(*, text: str = SENTENCE, mean_logprob: float = -0.3, no_speech: float = 0.1) -> Decoded:
    return Decoded(
        token_ids=[1, 2, 3],
        sum_logprob=mean_logprob * 4,
        text=text,
        no_speech_probability=no_speech,
    )


@pytest.mark.parametrize(
    ("one", "thresholds", "verdict"),
    [
        (decoded(), Thresholds(), Verdict.ACCEPT),
        (decoded(text=20 * SENTENCE), Thresholds(), Verdict.RETRY),
        (decoded(text=20 * SENTENCE), Thresholds(compression_ratio=None), Verdict.ACCEPT),
        (decoded(mean_logprob=-1.5), Thresholds(), Verdict.RETRY),
        (decoded(mean_logprob=-1.5), Thresholds(mean_logprob=None), Verdict.ACCEPT),
        (decoded(mean_logprob=-1.5, no_speech=0.7), Thresholds(), Verdict.SKIP),
        (decoded(no_speech=0.7), Thresholds(), Verdict.ACCEPT),
        (decoded(no_speech=0.7), Thresholds(mean_logprob=None), Verdict.SKIP),
        (
            decoded(mean_logprob=-1.5, no_speech=0.7),
            Thresholds(no_speech_probability=None),
            Verdict.RETRY,
        ),
        (decoded(text=""), Thresholds(), Verdict.ACCEPT),
    ],
)
def test_verdict(one: Decoded, thresholds: Thresholds, verdict: Verdict) -> None:
    assert assess(one, thresholds) is verdict


def test_the_end_token_counts_in_the_mean() -> None:
    assert decoded(mean_logprob=-0.5).mean_logprob == -0.5

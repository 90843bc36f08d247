"""A transcribing model's windows, special tokens and token rules."""

from collections.abc import Sequence
from dataclasses import dataclass

from shaperouter_service.speech.transcription.tokens import TranscriptTokens


@dataclass(frozen=True, kw_only=True)
class TranscriptSettings:
    """How to ask a model for transcripts.

    Attributes:
        tokens: Ids of its special tokens.
        suppressed: Ids that a transcript never contains.
        begin_suppressed: Ids that a transcript never begins with.
        last_initial_timestamp: The largest id that a transcript with timestamps may begin with.
        mel_bands: Number of mel bands of its spectrograms.
        window_frames: Frames of a whole window.
    """

    tokens: TranscriptTokens
    suppressed: Sequence[int]
    begin_suppressed: Sequence[int]
    last_initial_timestamp: int
    mel_bands: int
    window_frames: int

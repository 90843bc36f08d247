"""What a model that makes transcripts says of itself: its windows, its tokens and their rules."""

from collections.abc import Sequence
from dataclasses import dataclass

from shaperouter_service.transcription.tokens import TranscriptTokens


@dataclass(frozen=True, kw_only=True)
class TranscriptSettings:
    """How to ask a model for transcripts.

    Attributes:
        tokens: Ids of its special tokens.
        suppressed: Ids that no transcript has.
        begin_suppressed: Ids that none begins with.
        last_initial_timestamp: The largest id that one with timestamps may begin with.
        mel_bands: Of its spectrograms.
        window_frames: Of a whole window.
    """

    tokens: TranscriptTokens
    suppressed: Sequence[int]
    begin_suppressed: Sequence[int]
    last_initial_timestamp: int
    mel_bands: int
    window_frames: int

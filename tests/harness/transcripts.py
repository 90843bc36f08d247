"""A tiny vocabulary of letters and special tokens."""

from __future__ import annotations

from collections.abc import Sequence

from shaperouter_service.speech.transcription import Task, TranscriptTokens

END = 128
TOKENS = TranscriptTokens(
    end=END,
    start=END + 1,
    languages={"en": END + 2, "de": END + 3, "zh": END + 4},
    tasks={Task.TRANSLATE: END + 5, Task.TRANSCRIBE: END + 6},
    previous=END + 7,
    no_speech=END + 8,
    no_timestamps=END + 9,
)


def decode(token_ids: Sequence[int]) -> str:
    return bytes(token_ids).decode(errors="replace")


def transcript(*parts: str | float) -> list[int]:
    """Tokens of texts, and of times in seconds."""
    token_ids: list[int] = []
    for part in parts:
        if isinstance(part, str):
            token_ids += part.encode()
        else:
            token_ids.append(TOKENS.first_timestamp + round(part / 0.02))
    return token_ids

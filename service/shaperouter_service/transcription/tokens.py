"""Whisper's special tokens, and the prompts that are made of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

# A timestamp's step.
SECONDS_PER_TIMESTAMP = 0.02


class Task(StrEnum):
    """What a transcript is."""

    TRANSCRIBE = "transcribe"
    TRANSLATE = "translate"


@dataclass(frozen=True, kw_only=True)
class TranscriptTokens:
    """Ids of a model's special tokens.

    Attributes:
        end: Of the end of a text; ids below it are text.
        start: Where the decoder starts.
        languages: By code, e.g. `en`; empty for an English-only model.
        tasks: By task; empty for an English-only model.
        previous: Before the text of previous windows.
        no_speech: Its probability right after `start` is that nobody speaks.
        no_timestamps: Of a transcript without timestamps; ids above it are timestamps.
    """

    end: int
    start: int
    languages: Mapping[str, int]
    tasks: Mapping[Task, int]
    previous: int
    no_speech: int
    no_timestamps: int

    @property
    def is_multilingual(self) -> bool:
        """Whether a prompt names a language and a task."""
        return bool(self.languages)

    @property
    def first_timestamp(self) -> int:
        """The id of 0 s."""
        return self.no_timestamps + 1

    def is_timestamp(self, token: int) -> bool:
        """Whether it is one."""
        return token > self.no_timestamps

    def steps(self, timestamp: int) -> int:
        """How many steps after the window's start a timestamp is."""
        return timestamp - self.first_timestamp

    def text(self, token_ids: Sequence[int]) -> list[int]:
        """Those of text alone."""
        return [token for token in token_ids if token < self.end]

    def start_sequence(self, language: str | None, task: Task) -> list[int]:
        """What tells the decoder what to do.

        Args:
            language: Code of what is spoken; of an English-only model, it is not used.
            task: Likewise.

        Raises:
            KeyError: A multilingual model does not know the language.
        """
        if not self.is_multilingual:
            return [self.start]
        return [self.start, self.languages[str(language)], self.tasks[task]]

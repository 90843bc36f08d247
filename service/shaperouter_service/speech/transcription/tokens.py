"""A Whisper model's special tokens, the prompts made from them, and its settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

# Seconds of a timestamp's step.
SECONDS_PER_TIMESTAMP = 0.02


class Task(StrEnum):
    """Transcribe in the spoken language, or translate to English."""

    TRANSCRIBE = "transcribe"
    TRANSLATE = "translate"


@dataclass(frozen=True, kw_only=True)
class TranscriptTokens:
    """Ids of a model's special tokens.

    Attributes:
        end: Ends a text; all smaller ids are text.
        start: The decoder's first token.
        languages: Languages by code, e.g. `en`; empty for an English-only model.
        tasks: Tasks; empty for an English-only model.
        previous: Precedes the text of previous windows.
        no_speech: Its probability right after `start` is the probability that nobody speaks.
        no_timestamps: Begins a transcript without timestamps; all larger ids are timestamps.
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
        """The timestamp of 0 s."""
        return self.no_timestamps + 1

    def is_timestamp(self, token: int) -> bool:
        """Whether a token is a timestamp."""
        return token > self.no_timestamps

    def steps(self, timestamp: int) -> int:
        """Number of steps from the window's start to a timestamp."""
        return timestamp - self.first_timestamp

    def text(self, token_ids: Sequence[int]) -> list[int]:
        """The tokens that are text."""
        return [token for token in token_ids if token < self.end]

    def start_sequence(self, language: str | None, task: Task) -> list[int]:
        """The tokens that tell the decoder its language and task.

        Args:
            language: Code of the spoken language; ignored for an English-only model.
            task: Whether to transcribe or to translate; likewise.

        Raises:
            KeyError: A multilingual model does not know the language.
        """
        if not self.is_multilingual:
            return [self.start]
        return [self.start, self.languages[str(language)], self.tasks[task]]


@dataclass(frozen=True, kw_only=True)
class TranscriptSettings:
    """A transcribing model's windows, special tokens and token rules.

    Attributes:
        tokens: Its special tokens.
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

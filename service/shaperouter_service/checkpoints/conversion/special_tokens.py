"""Whisper's special tokens, found in its tokenizer by their texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from shaperouter_service.checkpoints.model_files import read_json
from shaperouter_service.errors import StartupError


@dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """Ids of special tokens.

    Attributes:
        end: Ends a text.
        start: Starts a transcript; the decoder's first token.
        languages: Languages by token, e.g. `<|en|>`; meaningless in English-only models.
        translate: Selects translation to English.
        transcribe: Selects transcription.
        previous: Precedes the text of the previous window.
        no_timestamps: Selects a transcript without timestamps; the first timestamp is the next id.
        texts: Texts of all special tokens, in the order of their ids, up to `no_timestamps`.
    """

    end: int
    start: int
    languages: Mapping[str, int]
    translate: int
    transcribe: int
    previous: int
    no_timestamps: int
    texts: Sequence[str]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a tokenizer.json.

        Raises:
            StartupError: It cannot be read, or a token is missing.
        """
        added = read_json(path).get("added_tokens", [])
        ids = {str(token["content"]): int(token["id"]) for token in added}

        def find(text: str) -> int:
            if text not in ids:
                raise StartupError(f"{path}: must be Whisper's tokenizer, but has no token {text}")
            return ids[text]

        start, translate = find("<|startoftranscript|>"), find("<|translate|>")
        no_timestamps = find("<|notimestamps|>")
        return cls(
            end=find("<|endoftext|>"),
            start=start,
            languages={text: token for text, token in ids.items() if start < token < translate},
            translate=translate,
            transcribe=find("<|transcribe|>"),
            previous=find("<|startofprev|>"),
            no_timestamps=no_timestamps,
            texts=[text for text in sorted(ids, key=ids.__getitem__) if ids[text] <= no_timestamps],
        )

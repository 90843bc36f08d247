"""Whisper's special tokens, found in its tokenizer by their texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from shaperouter_service.checkpoints.json_files import read_json
from shaperouter_service.errors import StartupError


@dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """Ids of special tokens.

    Attributes:
        end: Of the end of a text.
        start: Of the start of a transcript, where the decoder starts.
        languages: By name, e.g. `<|en|>`; those that an English-only model has mean nothing.
        translate: Of the task of translating to English.
        transcribe: Of the task of writing down.
        previous: Before the text that came before.
        no_timestamps: Of a transcript without timestamps; the first timestamp is the next id.
        texts: Of all of them, in the order of their ids, which end with `no_timestamps`.
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
            StartupError: It cannot be read, or a token is not there.
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

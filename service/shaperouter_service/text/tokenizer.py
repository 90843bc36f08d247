"""Tokenizers of Hugging Face checkpoints, for use by an event loop."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from shaperouter_service.errors import StartupError
from shaperouter_service.text.detokenizer import Detokenizer

# Files of which a checkpoint with a tokenizer has at least one. Without any, Transformers makes up
# an empty tokenizer for some families instead of failing.
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")


class Tokenizer:
    """A tokenizer, safe to use from several threads."""

    def __init__(self, directory: Path) -> None:
        """Loads the tokenizer of a checkpoint, without network and without code from it.

        Raises:
            StartupError: It cannot be loaded.
        """
        # Imported late: it takes a second that `--help` and workers need not wait for.
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        from transformers import AutoTokenizer

        try:
            self._tokenizer = AutoTokenizer.from_pretrained(
                directory,
                local_files_only=True,
                # Without a word, Transformers would ask on the terminal whether to run it.
                trust_remote_code=False,
            )
            # The first call drops a truncation that the file may ask for; from then on nothing of
            # the tokenizer changes, which is what makes it safe to share. Some damage shows here.
            self.decode(self._encode("warm"))
        except (KeyboardInterrupt, SystemExit):
            raise
        # For a damaged file, Transformers raises what it likes, and Rust that panics no Exception.
        except BaseException as error:
            raise StartupError(f"{directory}: cannot load the tokenizer: {error}") from error

    @property
    def name(self) -> str:
        """Class of the tokenizer, e.g. `GPT2Tokenizer`."""
        return type(self._tokenizer).__name__

    async def encode(self, text: str) -> list[int]:
        """Tokenizes in a thread: a long text takes a while."""
        return await asyncio.to_thread(self._encode, text)

    async def encode_plain(self, text: str) -> list[int]:
        """The same without special tokens: for what comes before something to be generated."""
        return (await self.encode_words([text]))[0]

    async def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Tokenizes words as they are, each on its own and without special tokens, in a thread."""
        return await asyncio.to_thread(self._encode_words, words)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Turns token ids into text, leaving out special tokens."""
        return str(
            self._tokenizer.decode(
                token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )

    def detokenizer(self) -> Detokenizer:
        """Makes a detokenizer for one sequence."""
        return Detokenizer(self.decode)

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, truncation=False, verbose=False)["input_ids"])

    def _encode_words(self, words: Sequence[str]) -> list[list[int]]:
        return [
            list(
                self._tokenizer(word, add_special_tokens=False, truncation=False, verbose=False)[
                    "input_ids"
                ]
            )
            for word in words
        ]


def load_tokenizer(directory: Path) -> Tokenizer | None:
    """Loads the tokenizer of a checkpoint; None if it comes without one.

    Raises:
        StartupError: It has one that cannot be loaded.
    """
    if not any((directory / name).exists() for name in TOKENIZER_FILES):
        return None
    return Tokenizer(directory)

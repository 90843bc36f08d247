"""Tokenizers of Hugging Face checkpoints."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from llguidance import LLTokenizer, TokenizerWrapper

from shaperouter_service.conversation import MessageFormat, message_format, template_names
from shaperouter_service.errors import StartupError
from shaperouter_service.generation.chat import Chat
from shaperouter_service.generation.limits import MIN_CHARACTERS_PER_TOKEN
from shaperouter_service.telemetry.logs import adopt_loggers
from shaperouter_service.text.chat_adaptation import ChatTemplateError, adapted
from shaperouter_service.text.chat_template import render_chat, takes_parts
from shaperouter_service.text.detokenizer import REPLACEMENT, Detokenizer
from shaperouter_service.text.languages import Languages
from shaperouter_service.text.text_encoding import EncodedText, encode_texts
from shaperouter_service.text.token_masks import ConstrainedVocabulary
from shaperouter_service.text.vocabulary import Vocabulary

# What SentencePiece puts before words in place of a space.
WORD_START = "\u2581"
# What SentencePiece calls a byte of a character without a token.
_BYTE = re.compile("<0x([0-9A-F]{2})>")

# A checkpoint with a tokenizer has at least one of these files. Without any, Transformers creates
# an empty tokenizer for some families instead of failing.
TOKENIZER_FILES = (
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
)


class Tokenizer:
    """A tokenizer. Several threads may share it."""

    def __init__(self, directory: Path) -> None:
        """Loads a checkpoint's tokenizer, without network access and without running its code.

        Raises:
            StartupError: The tokenizer cannot be loaded.
        """
        # Imported here because it takes a second, which `--help` and workers need not spend.
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        from transformers import AutoTokenizer

        adopt_loggers()
        self._backend: Any = None
        # What was found out about templates and their marks.
        self._takes_parts: dict[str, bool] = {}
        self._dropped_markers: dict[tuple[str, ...], Mapping[int, str]] = {}
        self._token_texts: dict[int, str] = {}
        self._token_bytes: dict[int, bytes | None] = {}
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(
                directory,
                local_files_only=True,
                # Without this, Transformers would ask on the terminal whether to run it.
                trust_remote_code=False,
            )
            # The first call removes a truncation that the file may ask for. Afterwards the
            # tokenizer does not change, so it can be shared. Some damage shows up here.
            self.decode(self.encode("warm"))
            self._languages = Languages.of(self._tokenizer)
            longest = max(map(len, self._tokenizer.get_vocab()), default=0)
        except (KeyboardInterrupt, SystemExit):
            raise
        # For a damaged file, Transformers raises various errors, and a Rust panic is not an
        # Exception.
        except BaseException as error:
            raise StartupError(f"{directory}: cannot load the tokenizer: {error}") from error
        self._characters_per_token = max(MIN_CHARACTERS_PER_TOKEN, longest)
        self._name = self._find_name()
        self._backend = self._find_backend()

    @property
    def name(self) -> str:
        """Class of the tokenizer, e.g. `GPT2Tokenizer`, or else its algorithm, e.g. `BPE`."""
        return self._name

    @property
    def token_ids(self) -> Mapping[str, int]:
        """The id of each token, by the token as the checkpoint writes it."""
        return dict(self._tokenizer.get_vocab())

    def _find_name(self) -> str:
        from transformers import TokenizersBackend

        kind = type(self._tokenizer)
        if kind is TokenizersBackend:
            return type(self._tokenizer.backend_tokenizer.model).__name__
        return kind.__name__

    def _find_backend(self) -> Any:
        """What Transformers calls in the end; None if this tokenizer's class does more than that.

        For a short text, Transformers takes several times as long as what it calls.
        """
        from transformers import TokenizersBackend

        kind = type(self._tokenizer)
        same = all(
            getattr(kind, name, None) is getattr(TokenizersBackend, name)
            for name in ("__call__", "_encode_plus", "decode", "_decode")
        )
        return self._tokenizer.backend_tokenizer if same else None

    @property
    def characters_per_token(self) -> int:
        """Maximum number of characters of a text for each token that a prompt may have.

        No token stands for more characters, so a longer text cannot fit. Only a normalizer could
        shorten it, for example by dropping repeated spaces; see `MIN_CHARACTERS_PER_TOKEN`.
        """
        return self._characters_per_token

    @property
    def has_chat_template(self) -> bool:
        """Whether the checkpoint has a chat template."""
        return bool(getattr(self._tokenizer, "chat_template", None))

    def render_chat(self, chat: Chat) -> str:
        """Turns a conversation into a prompt with the checkpoint's chat template.

        Raises:
            ChatTemplateError: The template has no place for a part of it, refuses it, fails or
                takes too long.
        """
        template = self._template(chat)
        has_parts = any(isinstance(each.get("content"), list) for each in chat.messages)
        if has_parts and template not in self._takes_parts:
            takes = takes_parts(self._tokenizer, chat.tools)
            # What one caller's tools do not show must not be decided for all others.
            if takes is not None:
                self._takes_parts[template] = takes
        chat = adapted(
            chat,
            template_names(template),
            message_format(template),
            takes_parts=self._takes_parts.get(template, False),
        )
        return render_chat(self._tokenizer, chat)

    def message_format(self, chat: Chat) -> MessageFormat:
        """How the model writes the answers to a conversation."""
        return message_format(self._template(chat))

    def dropped_markers(self, form: MessageFormat) -> Mapping[int, str]:
        """The marks of a format that are special tokens, so that texts lack them."""
        if form.markers not in self._dropped_markers:
            tokens = {self._tokenizer.convert_tokens_to_ids(mark): mark for mark in form.markers}
            self._dropped_markers[form.markers] = {
                token: mark
                for token, mark in tokens.items()
                if isinstance(token, int)
                and self._tokenizer.convert_ids_to_tokens(token) == mark
                and not self.decode([token])
            }
        return self._dropped_markers[form.markers]

    def _template(self, chat: Chat) -> str:
        """The template for a conversation; a checkpoint may have another one for tools.

        Raises:
            ChatTemplateError: There are only templates for something else.
        """
        try:
            return str(self._tokenizer.get_chat_template(tools=list(chat.tools) or None))
        except ValueError as error:
            raise ChatTemplateError(str(error)) from error

    def encode(self, text: str) -> list[int]:
        """Tokenizes a text, with the special tokens that the tokenizer adds."""
        return self._encode(text, add_special_tokens=True)

    @property
    def languages(self) -> Languages:
        """The languages that it tokenizes translations for."""
        return self._languages

    def encode_source(self, text: str, source_language: str, target_language: str) -> list[int]:
        """Tokenizes a text to translate, with the special tokens of its language.

        Args:
            text: The text.
            source_language: Code of its language; empty for the tokenizer's default.
            target_language: Code of the language to translate to; empty for the model's default.
        """
        text = self._languages.prefixes.get(target_language, "") + text
        if not source_language:
            return self.encode(text)
        before, after = self._languages.sources[source_language]
        return [*before, *self._encode(text, add_special_tokens=False), *after]

    def encode_texts(
        self, texts: Sequence[str], pairs: Sequence[str] | None, max_tokens: int | None
    ) -> list[EncodedText]:
        """Tokenizes texts, or pairs of texts, for a text encoder; see `encode_texts`."""
        return encode_texts(self._tokenizer, texts, pairs, max_tokens)

    @property
    def pad_id(self) -> int:
        """The token that pads inputs of text encoders; 0 if there is none."""
        return self._tokenizer.pad_token_id or 0

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Tokenizes words unchanged, each separately and without special tokens."""
        return [self._encode(word, add_special_tokens=False) for word in words]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Converts token ids to text, without special tokens."""
        if self._backend is not None:
            return str(self._backend.decode(token_ids, skip_special_tokens=True))
        return str(
            self._tokenizer.decode(
                token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )

    def token_text(self, token_id: int) -> str:
        """The text of one token by itself, special tokens included."""
        if (known := self._token_texts.get(token_id)) is None:
            known = self._token_texts[token_id] = self._token_text(token_id)
        return known

    def _token_text(self, token_id: int) -> str:
        token = self._tokenizer.convert_ids_to_tokens(token_id)
        if token is None:
            return ""
        # Decoded alone, a token that begins a word would lose its space.
        if token.startswith(WORD_START):
            return str(token).replace(WORD_START, " ")
        return str(
            self._tokenizer.decode(
                [token_id], skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    def token_bytes(self, token_id: int) -> bytes | None:
        """The bytes of `token_text`, also of a token that is part of a character; None if unknown.

        Joined, the bytes of several tokens are those of their characters.
        """
        if token_id not in self._token_bytes:
            self._token_bytes[token_id] = self._find_token_bytes(token_id)
        return self._token_bytes[token_id]

    def _find_token_bytes(self, token_id: int) -> bytes | None:
        token = self._tokenizer.convert_ids_to_tokens(token_id)
        if token is None:
            return None
        if self.decoder == "ByteLevel":
            return _bytes(token, self._byte_of_character)
        if self._falls_back_to_bytes and (byte := _BYTE.fullmatch(token)):
            return bytes([int(byte[1], 16)])
        text = self.token_text(token_id)
        # The text lacks bytes that form no character.
        return None if REPLACEMENT in text and REPLACEMENT not in token else text.encode()

    @cached_property
    def _byte_of_character(self) -> Mapping[str, int]:
        return _bytes_of_characters()

    @property
    def decoder(self) -> str | None:
        """The decoder's type in tokenizer.json; None joins tokens with spaces."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            return type(self._tokenizer).__name__
        return None if backend.decoder is None else type(backend.decoder).__name__

    @property
    def is_concatenative(self) -> bool:
        """Whether the text of a sequence is the concatenation of its tokens' bytes."""
        return self.decoder in (None, "ByteLevel", "Metaspace")

    def vocabulary(self, size: int) -> Vocabulary:
        """Computes what each token adds to a text, in seconds for a large vocabulary.

        Args:
            size: V, the model's vocabulary size.

        Raises:
            ValueError: The tokenizer is not concatenative.
        """
        if not self.is_concatenative:
            raise ValueError(f"a text of decoder {self.decoder} is more than its tokens' texts")
        backend: Any = self._tokenizer.backend_tokenizer
        ids = range(backend.get_vocab_size(with_added_tokens=True))

        def decoded(before: Sequence[int]) -> list[str]:
            return list(backend.decode_batch([[*before, token] for token in ids]))

        alone = decoded([])
        if self.decoder == "ByteLevel":
            # A token's bytes may end within a character.
            byte_of = self._byte_of_character
            tokens = [backend.id_to_token(token) or "" for token in ids]
            texts = [
                _bytes(token, byte_of) if text else b""
                for token, text in zip(tokens, alone, strict=True)
            ]
            return Vocabulary(texts, texts, size)
        # Decode each token after one that has text.
        anchor = next(token for token in ids if alone[token])
        later = [text[len(alone[anchor]) :].encode() for text in decoded([anchor])]
        return Vocabulary([text.encode() for text in alone], later, size)

    @property
    def is_constrainable(self) -> bool:
        """Whether the bytes of its tokens are known, so that texts can follow a constraint."""
        return self.is_concatenative or self._falls_back_to_bytes

    @property
    def _falls_back_to_bytes(self) -> bool:
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        return backend is not None and "ByteFallback" in str(backend.decoder)

    @cached_property
    def drops_first_space(self) -> bool:
        """Whether a text loses a space at its beginning when it is detokenized."""
        words = (
            token
            for piece, token in self._tokenizer.get_vocab().items()
            if piece.startswith(WORD_START) and piece[1:].isalpha()
        )
        # Without such a token, the last one of a word after a space shows it.
        token = next(words, self.encode_words(["a a"])[0][-1])
        alone = self.decode([token])
        return self.decode([token, token]) == f"{alone} {alone}"

    def constrained_vocabulary(self, size: int) -> ConstrainedVocabulary:
        """Makes its vocabulary ready to follow constraints, in seconds for a large one.

        Args:
            size: V, the model's vocabulary size.

        Raises:
            ValueError: The bytes of its tokens are not known.
        """
        backend: Any = self._tokenizer.backend_tokenizer
        if self.decoder == "ByteLevel" or self._falls_back_to_bytes:
            # A copy, because others may be using the tokenizer.
            copy = type(backend).from_str(backend.to_str())
            copy.no_padding()
            copy.no_truncation()
            size_with_added = max(size, backend.get_vocab_size(with_added_tokens=True))
            tokens = LLTokenizer(copy.to_str(), n_vocab=size_with_added)
        else:
            plain = _PlainVocabulary(self.vocabulary(size).later.texts)
            tokens = LLTokenizer(TokenizerWrapper(plain))
            plain.tokenize = tokens.greedy_tokenize
        return ConstrainedVocabulary(tokens, size)

    def detokenizer(self, context: Sequence[int] = ()) -> Detokenizer:
        """Creates a detokenizer for one sequence; see `Detokenizer`."""
        return Detokenizer(self.decode, context)

    def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        if self._backend is not None:
            return list(self._backend.encode(text, add_special_tokens=add_special_tokens).ids)
        return list(
            self._tokenizer(
                text,
                add_special_tokens=add_special_tokens,
                truncation=False,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,
            )["input_ids"]
        )


class _PlainVocabulary:
    """The bytes of tokens in the form that llguidance takes.

    Attributes:
        tokenize: Tokenizes a text, such as a name in a schema.
    """

    bos_token_id = None

    def __init__(self, texts: Sequence[bytes]) -> None:
        # An end token of its own, since it needs one; the request says which tokens end its text.
        self.tokens = [*texts, b"\xff<end>"]
        self.eos_token_id = len(texts)
        self.special_token_ids = [self.eos_token_id]
        self.tokenize: Callable[[str], list[int]]

    def __call__(self, text: str) -> list[int]:
        return self.tokenize(text)


def _bytes_of_characters() -> Mapping[str, int]:
    """The byte for each character of a byte-level token."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {character: byte for byte, character in bytes_to_unicode().items()}


def _bytes(token: str, byte_of: Mapping[str, int]) -> bytes:
    """The bytes of a byte-level token. Added tokens may be plain text."""
    if all(character in byte_of for character in token):
        return bytes(byte_of[character] for character in token)
    return token.encode()


def load_tokenizer(directory: Path) -> Tokenizer | None:
    """Loads a checkpoint's tokenizer; None if it has none.

    Raises:
        StartupError: The tokenizer cannot be loaded.
    """
    if not any((directory / name).exists() for name in TOKENIZER_FILES):
        return None
    return Tokenizer(directory)

"""Requests, and their preparation for a model."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import pytest

from harness.default_options import default_options
from harness.routing import LADDERS
from shaperouter.v1 import generation_pb2
from shaperouter_service.errors import InvalidRequestError, Violation
from shaperouter_service.routing.served_model import ModelKind, ServedModel
from shaperouter_service.serving.generation.preparation import PreparedRequest, prepare
from shaperouter_service.text import ClientTokenizer
from shaperouter_service.text.languages import Languages
from shaperouter_service.wire.generation import GenerateAny, generation_from_message
from shaperouter_service.wire.options import options_from_message

MODEL = ServedModel(
    name="tiny",
    tokenizer="GPT2Tokenizer",
    characters_per_token=128,
    vocab_size=100,
    max_length=32,
    default_options=options_from_message(default_options()),
    ladders=dataclasses.replace(LADDERS, lanes=LADDERS.lanes[:3]),
)
MUTE_MODEL = dataclasses.replace(
    MODEL, name="mute", tokenizer="", characters_per_token=0, max_length=1024
)
ANSWERING = dataclasses.replace(
    MODEL,
    name="answering",
    kind=ModelKind.ENCODER_DECODER,
    tokenizer="T5Tokenizer",
    max_source_length=16,
    decoder_start_token_id=0,
)


class Letters:
    """A tokenizer with a token for each letter, its index in the alphabet, and 1 for others."""

    is_concatenative = True
    decoder = "ByteLevel"

    async def encode(self, text: str) -> list[int]:
        return [1 + max("abcdefghijklmnopqrstuvwxyz~".find(letter), 0) for letter in text]

    languages = Languages(
        sources={"en": ((40,), (41,)), "fr": ((42,), (41,))},
        targets={"en": 40, "fr": 42},
        prefixes={"de": "z "},
    )

    async def encode_source(
        self, text: str, source_language: str, target_language: str
    ) -> list[int]:
        text = self.languages.prefixes.get(target_language, "") + text
        before, after = self.languages.sources.get(source_language, ((), ()))
        return [*before, *await self.encode(text), *after]

    async def encode_plain(self, text: str) -> list[int]:
        return [50 + token for token in await self.encode(text)]

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(f"<{token}>" for token in token_ids)

    def context(self, prompt: Sequence[int]) -> Sequence[int]:
        return prompt[-1:]

    async def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        # One token beyond the model's vocabulary, as tokenizers of padded checkpoints have.
        return [
            [100 if token == 27 else token for token in await self.encode(word.strip())]
            for word in words
        ]


def prepared(request: GenerateAny, model: ServedModel = MODEL) -> PreparedRequest:
    tokenizer = cast("ClientTokenizer", Letters()) if model.tokenizer else None
    return asyncio.run(prepare(generation_from_message(request), model, tokenizer))


def violations(request: GenerateAny, model: ServedModel = MODEL) -> Sequence[Violation]:
    with pytest.raises(InvalidRequestError) as error:
        prepared(request, model)
    return error.value.violations


def with_text(text: str, **options: Any) -> generation_pb2.GenerateRequest:
    return generation_pb2.GenerateRequest(
        text=text, options=generation_pb2.GenerationOptions(**options)
    )


def with_ids(*ids: int, **options: Any) -> generation_pb2.GenerateRequest:
    return generation_pb2.GenerateRequest(
        token_ids=generation_pb2.TokenIds(ids=ids),
        options=generation_pb2.GenerationOptions(**options),
    )


def bias(token_id: int, value: float = 1.0) -> generation_pb2.LogitBias:
    return generation_pb2.LogitBias(token_id=token_id, bias=value)


def run_of(*ids: int) -> generation_pb2.TokenIds:
    return generation_pb2.TokenIds(ids=ids)

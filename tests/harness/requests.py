"""Requests, and what preparing them for a model says of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from harness.default_options import default_options
from shaperouter.v1 import generation_pb2, model_pb2
from shaperouter_service.errors import InvalidRequestError, Violation
from shaperouter_service.serving.generation.preparation import PreparedRequest, prepare
from shaperouter_service.text import ClientTokenizer
from shaperouter_service.wire.inputs import GenerateAny

MODEL = model_pb2.Model(
    name="tiny",
    tokenizer="GPT2Tokenizer",
    characters_per_token=128,
    vocab_size=100,
    max_length=32,
    default_options=default_options(),
    ladders=model_pb2.Ladders(
        lanes=[model_pb2.LaneLadders(beams=1), model_pb2.LaneLadders(beams=4)]
    ),
)
MUTE_MODEL = model_pb2.Model(
    name="mute", vocab_size=100, max_length=1024, default_options=default_options()
)
ANSWERING = model_pb2.Model(
    name="answering",
    kind=model_pb2.MODEL_KIND_ENCODER_DECODER,
    tokenizer="T5Tokenizer",
    characters_per_token=128,
    vocab_size=100,
    max_length=32,
    max_source_length=16,
    decoder_start_token_id=0,
    default_options=default_options(),
)


class Letters:
    """A tokenizer of one token for each letter: its place in the alphabet, 1 for any other."""

    is_concatenative = True
    decoder = "ByteLevel"

    async def encode(self, text: str) -> list[int]:
        return [1 + max("abcdefghijklmnopqrstuvwxyz~".find(letter), 0) for letter in text]

    async def encode_plain(self, text: str) -> list[int]:
        return [50 + token for token in await self.encode(text)]

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(f"<{token}>" for token in token_ids)

    async def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        # One token beyond the model's vocabulary, as tokenizers of padded checkpoints have.
        return [
            [100 if token == 27 else token for token in await self.encode(word.strip())]
            for word in words
        ]


def prepared(request: GenerateAny, model: model_pb2.Model = MODEL) -> PreparedRequest:
    tokenizer = cast("ClientTokenizer", Letters()) if model.tokenizer else None
    return asyncio.run(prepare(request, model, tokenizer))


def violations(request: GenerateAny, model: model_pb2.Model = MODEL) -> Sequence[Violation]:
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

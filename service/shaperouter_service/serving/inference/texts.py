"""Texts of callers as the inputs of text encoders."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from shaperouter_service.errors import InvalidRequestError, Violation
from shaperouter_service.generation.text_validation import (
    MAX_VIOLATIONS_OF_LIST,
    TokenLimit,
    text_violations,
)
from shaperouter_service.inference.calls import InferenceRequest, Tensors
from shaperouter_service.inference.limits import MAX_PADDED_TOKENS, MAX_TEXTS
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.tensors.dtypes import DType
from shaperouter_service.tensors.specs import CallSpec
from shaperouter_service.text import ClientTokenizer, EncodedText

# Inputs of callers: texts, and the second text of each pair.
TEXT, TEXT_PAIR = "text", "text_pair"
# Inputs of text encoders, each [rows, length]: ids, 1 for tokens and 0 for padding, and 1 for the
# second text of a pair.
TOKENS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"


def has_texts(inputs: Tensors) -> bool:
    """Whether a caller sends texts instead of token ids."""
    return TEXT in inputs or TEXT_PAIR in inputs


async def tokenized(
    request: InferenceRequest,
    model: ServedModel,
    spec: CallSpec,
    tokenizer: ClientTokenizer | None,
) -> Tensors:
    """The inputs of a text encoder for the texts of a request, padded to the longest.

    Args:
        request: The request, which has texts.
        model: The text encoder.
        spec: Its tensors.
        tokenizer: Its tokenizer, if it has one.

    Raises:
        InvalidRequestError: The texts are invalid.
        TextQueueFullError: Too much text is already waiting to be tokenized.
    """
    if tokenizer is None:
        description = f"{model.name} has no tokenizer, so it takes token ids instead of texts"
        raise InvalidRequestError(Violation(field=f"inputs.{TEXT}", description=description))
    _check_names(request.inputs)
    texts = _decoded(TEXT, request.inputs[TEXT])
    pairs = _decoded(TEXT_PAIR, request.inputs[TEXT_PAIR]) if TEXT_PAIR in request.inputs else None
    if pairs is not None and len(pairs) != len(texts):
        description = f"must have as many texts as {TEXT}, {len(texts)}, got {len(pairs)}"
        raise InvalidRequestError(Violation(field=f"inputs.{TEXT_PAIR}", description=description))
    texts, pairs = _as_trained(texts, pairs, model)
    limit = TokenLimit(model.max_length, f"max_length of {model.name}")
    if request.truncates:
        # No token has more characters, so what is cut here would not have fitted.
        characters = limit.tokens * model.characters_per_token
        texts = [text[:characters] for text in texts]
        pairs = pairs and [text[:characters] for text in pairs]
    else:
        _check_characters(model, TEXT, texts, limit)
        _check_characters(model, TEXT_PAIR, pairs or (), limit)
    encoded = await tokenizer.encode_texts(
        texts, pairs, limit.tokens if request.truncates else None
    )
    # In a request to rank documents, all first texts are the same query.
    field = f"inputs.{TEXT if pairs is None else TEXT_PAIR}"
    _check_lengths(encoded, limit, field, "" if pairs is None else " and its other text")
    _check_padding(encoded, field)
    return _padded(encoded, spec, tokenizer.pad_id)


def _check_names(inputs: Tensors) -> None:
    """Raises InvalidRequestError if texts come without TEXT, or together with other inputs."""
    if TEXT not in inputs:
        raise InvalidRequestError(Violation(field=f"inputs.{TEXT}", description="is required"))
    others = sorted(inputs.keys() - {TEXT, TEXT_PAIR})
    if others:
        description = f"must come without token ids and other inputs, got {', '.join(others)[:64]}"
        raise InvalidRequestError(Violation(field=f"inputs.{TEXT}", description=description))


def _decoded(name: str, array: "np.ndarray[Any, Any]") -> list[str]:
    """The texts of an input."""
    field = f"inputs.{name}"
    if DType.of(array) is not DType.BYTES:
        description = f"must be {DType.BYTES}, got {DType.of(array)}"
        raise InvalidRequestError(Violation(field=field, description=description))
    # Open Inference clients send texts as a column.
    if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[1] != 1) or not array.size:
        shape = "x".join(map(str, array.shape)) or "a single element"
        description = f"must have the shape n or nx1 with n of at least 1, got {shape}"
        raise InvalidRequestError(Violation(field=field, description=description))
    if array.size > MAX_TEXTS:
        description = f"must have at most {MAX_TEXTS} texts, got {array.size}"
        raise InvalidRequestError(Violation(field=field, description=description))
    texts = []
    for index, value in enumerate(array.ravel().tolist()):
        try:
            texts.append(value.decode())
        except UnicodeDecodeError as error:
            violation = Violation(field=f"{field}[{index}]", description=f"must be UTF-8: {error}")
            raise InvalidRequestError(violation) from None
    return texts


def _as_trained(
    texts: list[str], pairs: list[str] | None, model: ServedModel
) -> tuple[list[str], list[str] | None]:
    """Texts as the model's checkpoint expects them, which sentence-transformers makes of them."""
    if pairs is None:
        texts = [model.text_prompt + text for text in texts]
    if model.lowercases_text:
        texts = [text.lower() for text in texts]
        pairs = pairs and [text.lower() for text in pairs]
    return texts, pairs


def _check_characters(
    model: ServedModel, name: str, texts: Sequence[str], limit: TokenLimit
) -> None:
    violations = [
        violation
        for index, text in enumerate(texts)
        for violation in text_violations(model, f"inputs.{name}[{index}]", text, limit)
    ]
    if violations:
        raise InvalidRequestError(*violations[:MAX_VIOLATIONS_OF_LIST])


def _check_lengths(
    encoded: Sequence[EncodedText], limit: TokenLimit, field: str, together: str
) -> None:
    violations = list(_length_violations(encoded, limit, field, together))
    if violations:
        raise InvalidRequestError(*violations[:MAX_VIOLATIONS_OF_LIST])


def _length_violations(
    encoded: Sequence[EncodedText], limit: TokenLimit, field: str, together: str
) -> Iterator[Violation]:
    for index, text in enumerate(encoded):
        if not text.ids:
            yield Violation(field=f"{field}[{index}]", description="must have a token, got none")
        elif len(text.ids) > limit.tokens:
            description = (
                f"must have at most {limit.tokens} tokens with special tokens{together} "
                f"({limit.reason}), got {len(text.ids)}; set truncate to cut what is too long"
            )
            yield Violation(field=f"{field}[{index}]", description=description)


def _check_padding(encoded: Sequence[EncodedText], field: str) -> None:
    longest = max(len(text.ids) for text in encoded)
    if len(encoded) * longest > MAX_PADDED_TOKENS:
        description = (
            f"must have at most {MAX_PADDED_TOKENS} tokens when padded to the longest text, got "
            f"{len(encoded)} texts of up to {longest} tokens"
        )
        raise InvalidRequestError(Violation(field=field, description=description))


def _padded(encoded: Sequence[EncodedText], spec: CallSpec, pad_id: int) -> Tensors:
    shape = (len(encoded), max(1, *(len(text.ids) for text in encoded)))
    tensors = {
        each.name: np.full(shape, pad_id if each.name == TOKENS else 0, dtype=each.dtype.numpy)
        for each in spec.inputs
    }
    for row, text in enumerate(encoded):
        end = len(text.ids)
        for name, values in ((TOKENS, text.ids), (MASK, 1), (TYPES, text.type_ids)):
            if name in tensors:
                tensors[name][row, :end] = values
    return tensors

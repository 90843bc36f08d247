"""Texts, and pairs of texts, as the inputs of a text encoder."""

from collections.abc import Sequence
from typing import Any, NamedTuple


class EncodedText(NamedTuple):
    """A text, or a pair, as a text encoder reads it.

    Attributes:
        ids: Its token ids, with the special tokens that the tokenizer adds.
        type_ids: 1 for tokens of the second text of a pair, if the tokenizer tells them apart.
    """

    ids: Sequence[int]
    type_ids: Sequence[int]


def encode_texts(
    tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None, max_tokens: int | None
) -> list[EncodedText]:
    """Tokenizes texts, or pairs of texts.

    Nothing of the tokenizer changes, so that several threads may share it.

    Args:
        tokenizer: A tokenizer of Transformers.
        texts: The texts.
        pairs: The second text of each; None without pairs.
        max_tokens: Cuts what is longer, at the end and of a pair the longer text, as Transformers
            does; None cuts nothing.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return _encode_slowly(tokenizer, texts, pairs, max_tokens)
    inputs: Any = texts if pairs is None else list(zip(texts, pairs, strict=True))
    encodings = backend.encode_batch(inputs, add_special_tokens=True)
    if max_tokens is not None:
        for index, encoding in enumerate(encodings):
            if len(encoding.ids) > max_tokens:
                pair = None if pairs is None else pairs[index]
                encodings[index] = _truncated(backend, texts[index], pair, max_tokens)
    return [EncodedText(encoding.ids, encoding.type_ids) for encoding in encodings]


def _truncated(backend: Any, text: str, pair: str | None, max_tokens: int) -> Any:
    room = max(0, max_tokens - backend.num_special_tokens_to_add(pair is not None))
    first = backend.encode(text, add_special_tokens=False)
    if pair is None:
        first.truncate(room)
        return backend.post_process(first)
    second = backend.encode(pair, add_special_tokens=False)
    lengths = _longest_first(len(first.ids), len(second.ids), room)
    first.truncate(lengths[0])
    second.truncate(lengths[1])
    return backend.post_process(first, second)


def _longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """The lengths of two texts after tokens were taken from the longer one until both fit."""
    if first > second:
        shorter, longer = _longest_first(second, first, room)
        return longer, shorter
    if 2 * first > room:
        return room // 2, room - room // 2
    return first, min(second, room - first)


def _encode_slowly(
    tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None, max_tokens: int | None
) -> list[EncodedText]:
    """Tokenizes with a tokenizer that is written in Python, and keeps no settings of a call."""
    encoded = tokenizer(
        list(texts),
        None if pairs is None else list(pairs),
        truncation=max_tokens is not None,
        max_length=max_tokens,
        return_token_type_ids=True,
        verbose=False,
    )
    return list(map(EncodedText, encoded["input_ids"], encoded["token_type_ids"]))

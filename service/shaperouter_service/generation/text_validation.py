"""Validation of texts and token ids, which prompts and options share."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from shaperouter_service.errors import Violation
from shaperouter_service.routing.served_model import ServedModel

# Maximum violations reported for one list: statuses travel in headers, which gRPC limits to a few
# kilobytes.
MAX_VIOLATIONS_OF_LIST = 3


class TokenLimit(NamedTuple):
    """A maximum number of tokens, and the reason for it."""

    tokens: int
    reason: str


def text_violations(
    model: ServedModel, field: str, text: str, limit: TokenLimit
) -> Iterator[Violation]:
    """Checks that a text is not too long to be tokenized.

    Args:
        model: A model with a tokenizer.
        field: The field of the text.
        text: The text.
        limit: Limit of its tokens.
    """
    maximum = limit.tokens * model.characters_per_token
    if len(text) > maximum:
        description = (
            f"must have at most {maximum} characters ({model.characters_per_token} for each of "
            f"{limit.tokens} tokens, {limit.reason}), got {len(text)}"
        )
        yield Violation(field=field, description=description)


def id_violations(
    field: str, ids: Sequence[int], model: ServedModel, *, maximum: int = MAX_VIOLATIONS_OF_LIST
) -> Iterator[Violation]:
    """Violations of token ids, one by one, up to `maximum`."""
    for index, token in islice(_unknown(ids, model), maximum):
        yield Violation(field=f"{field}[{index}]", description=f"{vocabulary(model)}, got {token}")


def tokenized_violations(ids: Sequence[int], model: ServedModel) -> Iterator[str]:
    """Describes the first token that a text became and that the model does not know.

    A tokenizer may have more tokens than the model has embeddings.
    """
    last = model.vocab_size - 1
    for _, token in islice(_unknown(ids, model), 1):
        yield (
            f"must tokenize to ids from 0 to {last} (vocab_size of {model.name} - 1), got {token}"
        )


def vocabulary(model: ServedModel) -> str:
    """The rule of a token id."""
    return f"must be from 0 to {model.vocab_size - 1} (vocab_size - 1)"


def _unknown(ids: Sequence[int], model: ServedModel) -> Iterator[tuple[int, int]]:
    """The ids that the model does not know, with their indices."""
    return ((i, token) for i, token in enumerate(ids) if not 0 <= token < model.vocab_size)

"""A model's tokenizer, for one request."""

import contextlib
import dataclasses
from collections.abc import Iterator

from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.serving.request_record import RequestRecord
from shaperouter_service.text import ClientTokenizer, Tokenizer, TokenizerThreads


def with_tokenizer(model: ServedModel, tokenizer: Tokenizer | None) -> ServedModel:
    """Adds the tokenizer to a model's description, because workers do not know it.

    Args:
        model: The description.
        tokenizer: Its tokenizer; None if it has none.
    """
    if tokenizer is None:
        return model
    return dataclasses.replace(
        model,
        tokenizer=tokenizer.name,
        characters_per_token=tokenizer.characters_per_token,
    )


@contextlib.contextmanager
def taking_turns(
    tokenizer: Tokenizer, threads: TokenizerThreads, client: str, record: RequestRecord
) -> Iterator[ClientTokenizer]:
    """Lends a tokenizer to a request inside the context, and records the time it takes.

    Args:
        tokenizer: The model's tokenizer.
        threads: The threads that tokenize texts.
        client: The client.
        record: Record of the request.
    """
    lent = ClientTokenizer(tokenizer, threads, client)
    try:
        yield lent
    finally:
        record.tokenized(queue_seconds=lent.queue_seconds, seconds=lent.seconds)

"""Validation of a model's input: its source, and the prompt that it continues."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from shaperouter_service.errors import Violation
from shaperouter_service.generation.limits import CONTEXT_LENGTH_EXCEEDED
from shaperouter_service.generation.text_validation import (
    TokenLimit,
    id_violations,
    text_violations,
    tokenized_violations,
)
from shaperouter_service.routing.served_model import ServedModel


@dataclass(frozen=True, kw_only=True)
class Input:
    """An input as received, in one of two forms; None where a form was not given.

    Attributes:
        text_field: Field of the text.
        text: The text.
        ids_field: Field of the token ids; that of the text, if one field takes either form.
        token_ids: The token ids.
    """

    text_field: str
    text: str | None
    ids_field: str
    token_ids: Sequence[int] | None

    @property
    def ids_list(self) -> str:
        """Field of the list of token ids, which messages have within `ids_field`."""
        return self.ids_field if self.ids_field == self.text_field else f"{self.ids_field}.ids"

    async def tokens(
        self, encode: Callable[[str], Awaitable[Sequence[int]]] | None
    ) -> tuple[str, Sequence[int]]:
        """Returns the field that was given, and its tokens.

        Args:
            encode: Tokenizes a text; None without a tokenizer.
        """
        if encode and self.text is not None:
            return self.text_field, await encode(self.text)
        return self.ids_list, self.token_ids or ()


def input_violations(given: Input, model: ServedModel) -> Iterator[Violation]:
    """Violations of text or token ids before they are tokenized."""
    if given.text is None and given.token_ids is None:
        description = "one of text, token_ids and messages must be set, got none"
        yield Violation(field="text", description=description)
    limit = _source_limit(model) if model.is_encoder_decoder else _prompt_limit(model)
    yield from _form_violations(given, model, limit)


def decoder_input_violations(given: Input, model: ServedModel) -> Iterator[Violation]:
    """Violations of a decoder's prompt, which may be left out, before it is tokenized."""
    if model.is_encoder_decoder:
        yield from _form_violations(given, model, _prompt_limit(model))
        return
    for field, value in ((given.text_field, given.text), (given.ids_field, given.token_ids)):
        if value is not None:
            description = f"must not be set: model {model.name} has no encoder"
            yield Violation(field=field, description=description)


def _form_violations(given: Input, model: ServedModel, limit: TokenLimit) -> Iterator[Violation]:
    field, text, ids = given.text_field, given.text, given.token_ids
    if text is not None and ids is not None:
        description = f"must not be set together with {given.ids_field}"
        yield Violation(field=field, description=description)
    elif text is not None:
        if not text:
            yield Violation(field=field, description="must not be empty")
        elif not model.has_tokenizer:
            instead = "token ids" if given.ids_field == field else given.ids_field
            description = f"model {model.name} has no tokenizer; send {instead}"
            yield Violation(field=field, description=description)
        else:
            yield from _text_violations(model, field, text, limit)
    elif ids is not None:
        field = given.ids_list
        if not ids:
            yield Violation(field=field, description="must not be empty, got 0 ids")
        # Look no further than the limit: longer lists are refused without reading them.
        longest = max(model.max_length, model.max_source_length)
        yield from id_violations(field, ids[:longest], model, maximum=1)


def _text_violations(
    model: ServedModel, field: str, text: str, limit: TokenLimit
) -> Iterator[Violation]:
    for violation in text_violations(model, field, text, limit):
        yield replace(violation, reason=CONTEXT_LENGTH_EXCEEDED)


def rendered_violations(model: ServedModel, field: str, text: str) -> Iterator[Violation]:
    """Violations of a text that a template has made, before it is tokenized."""
    yield from _text_violations(model, field, text, _prompt_limit(model))


def prompt_violations(model: ServedModel, field: str, prompt: Sequence[int]) -> Iterator[Violation]:
    """Violations of a prompt's tokens, if there were none before.

    Args:
        model: The model that continues it.
        field: The field of the prompt.
        prompt: Its tokens; with an encoder, the decoder's prompt with its start token.
    """
    yield from _token_violations(model, field, prompt, _prompt_limit(model))


def source_violations(model: ServedModel, field: str, source: Sequence[int]) -> Iterator[Violation]:
    """Violations of a source's tokens, likewise."""
    yield from _token_violations(model, field, source, _source_limit(model))


def _prompt_limit(model: ServedModel) -> TokenLimit:
    return TokenLimit(model.max_length - 1, f"max_length of {model.name} less one to generate")


def _source_limit(model: ServedModel) -> TokenLimit:
    return TokenLimit(model.max_source_length, f"max_source_length of {model.name}")


def _token_violations(
    model: ServedModel, field: str, tokens: Sequence[int], limit: TokenLimit
) -> Iterator[Violation]:
    if not tokens:
        yield Violation(field=field, description="must not be empty, got 0 tokens")
    if len(tokens) > limit.tokens:
        rule = f"must have at most {limit.tokens} tokens ({limit.reason})"
        yield Violation(
            field=field, description=f"{rule}, got {len(tokens)}", reason=CONTEXT_LENGTH_EXCEEDED
        )
    for description in tokenized_violations(tokens[: limit.tokens], model):
        yield Violation(field=field, description=description)

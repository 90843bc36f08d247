"""A request to generate."""

from dataclasses import dataclass

from shaperouter_service.generation.chat import Chat
from shaperouter_service.generation.inputs import Input
from shaperouter_service.generation.resolution import Given


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """A request to generate.

    Attributes:
        model: Name of the model; empty for the only one that takes text.
        input: The prompt, or the source of a model with an encoder.
        chat: A conversation in place of the prompt; None for none.
        decoder_input: The decoder's prompt, if the model has an encoder.
        options: The options that were given, by name.
        explain: Whether to return how the request was routed.
        reads_along: Whether the caller reads tokens before the end.
        reads_messages: Whether the answers to a conversation are split into text, reasoning and
            calls of tools.
    """

    model: str
    input: Input
    decoder_input: Input
    options: Given
    chat: Chat | None = None
    explain: bool = False
    reads_along: bool = False
    reads_messages: bool = False

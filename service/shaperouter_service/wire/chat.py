"""Conversations and their messages."""

from typing import Any

from shaperouter.v1 import generation_pb2
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.generation.chat import Chat
from shaperouter_service.generation.limits import MAX_MESSAGES, MAX_TOOLS
from shaperouter_service.system.strict_json import parse


def chat_from_message(
    message: generation_pb2.GenerateRequest | generation_pb2.GenerateStreamRequest,
) -> Chat | None:
    """The conversation of a request; None if it has none.

    Raises:
        InvalidRequestError: A field is not a JSON object, or there are too many.
    """
    if not (message.messages or message.tools or message.chat_template_kwargs):
        return None
    _check_count("messages", len(message.messages), MAX_MESSAGES)
    _check_count("tools", len(message.tools), MAX_TOOLS)
    return Chat(
        messages=[_chat_message(index, each) for index, each in enumerate(message.messages)],
        tools=[_object(f"tools[{index}]", each) for index, each in enumerate(message.tools)],
        template_arguments=_object("chat_template_kwargs", message.chat_template_kwargs or "{}"),
    )


def _check_count(field: str, count: int, most: int) -> None:
    # Each takes the event loop some microseconds.
    if count > most:
        raise InvalidRequestError.of(field, f"must have at most {most} {field}, got {count}")


def _chat_message(index: int, message: generation_pb2.ChatMessage) -> dict[str, Any]:
    field = f"messages[{index}].other_fields"
    others = _object(field, message.other_fields or "{}")
    fields: dict[str, Any] = {"role": message.role}
    if message.HasField("content"):
        fields["content"] = message.content
    for name in sorted(fields.keys() & others.keys()):
        raise InvalidRequestError.of(field, f"must not repeat {name}")
    return {**fields, **others}


def _object(field: str, text: str) -> dict[str, Any]:
    try:
        value = parse(text)
    except ValueError as error:
        raise InvalidRequestError.of(field, f"must be a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise InvalidRequestError.of(field, f"must be a JSON object, got {type(value).__name__}")
    return value

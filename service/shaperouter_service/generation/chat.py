"""Conversations, which the chat template of a checkpoint turns into prompts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from shaperouter_service.errors import Violation, shortened
from shaperouter_service.generation.limits import MAX_MESSAGES
from shaperouter_service.generation.text_validation import MAX_VIOLATIONS_OF_LIST

# What Transformers takes besides the arguments of templates. If callers set these, they could
# replace the template or what it is given.
RESERVED_ARGUMENTS = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "conversations",
        "max_length",
        "messages",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "sanitize_control_tokens",
        "self",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
    }
)


@dataclass(frozen=True, kw_only=True)
class Chat:
    """A conversation, as a caller sent it.

    Attributes:
        messages: The messages in order, each with `role`, `content` and any other fields.
        tools: Tools that the template may offer to the model, each a JSON object.
        template_arguments: Further arguments of the template.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    template_arguments: Mapping[str, Any] = field(default_factory=dict)


def chat_violations(chat: Chat) -> Iterator[Violation]:
    """Violations of a conversation before its template sees it."""
    if not chat.messages:
        yield Violation(
            field="messages",
            description="must not be empty if tools or "
            "chat_template_kwargs are set, got 0 messages",
        )
    if len(chat.messages) > MAX_MESSAGES:
        rule = f"must have at most {MAX_MESSAGES} messages"
        yield Violation(field="messages", description=f"{rule}, got {len(chat.messages)}")
    else:
        yield from islice(_message_violations(chat.messages), MAX_VIOLATIONS_OF_LIST)
    for name in sorted(RESERVED_ARGUMENTS & chat.template_arguments.keys()):
        yield Violation(field="chat_template_kwargs", description=f"must not set {name}")


def _message_violations(messages: Sequence[Mapping[str, Any]]) -> Iterator[Violation]:
    for index, message in enumerate(messages):
        if not message.get("role"):
            yield Violation(field=f"messages[{index}].role", description="must not be empty")
        content = message.get("content")
        if content is not None and not isinstance(content, str) and not _is_text_parts(content):
            yield Violation(
                field=f"messages[{index}].content",
                description='must be a text or a list of parts {"type": "text", "text": "..."}, '
                f"got {shortened(repr(content), 100)}",
            )


def _is_text_parts(content: object) -> bool:
    return isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
        for part in content
    )

"""Conversations, which the chat template of a checkpoint turns into prompts."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from shaperouter_service.errors import Violation, shortened
from shaperouter_service.generation.limits import MAX_MESSAGES, MAX_TOOLS
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
        parallel_tool_calls: Whether an answer may call several tools; else it ends after one call.
            Only answers that are read as messages have calls.
        must_call: An answer must call one of these tools; empty if no call is required.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    template_arguments: Mapping[str, Any] = field(default_factory=dict)
    parallel_tool_calls: bool = True
    must_call: Collection[str] = ()

    @property
    def tool_names(self) -> Sequence[str]:
        """The names of the tools."""
        return list(self.tool_schemas)

    @property
    def tool_schemas(self) -> Mapping[str, Mapping[str, Any]]:
        """The JSON schemas of the tools' arguments, by name; an object if a tool has none."""
        functions = (tool.get("function", tool) for tool in self.tools)
        return {
            each["name"]: each.get("parameters") or {"type": "object"}
            for each in functions
            if isinstance(each, Mapping) and isinstance(each.get("name"), str)
        }


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
    if len(chat.tools) > MAX_TOOLS:
        rule = f"must have at most {MAX_TOOLS} tools"
        yield Violation(field="tools", description=f"{rule}, got {len(chat.tools)}")
    for name in sorted(RESERVED_ARGUMENTS & chat.template_arguments.keys()):
        yield Violation(field="chat_template_kwargs", description=f"must not set {name}")


def _message_violations(messages: Sequence[Mapping[str, Any]]) -> Iterator[Violation]:
    for index, message in enumerate(messages):
        if not message.get("role"):
            yield Violation(field=f"messages[{index}].role", description="must not be empty")
        content, field = message.get("content"), f"messages[{index}].content"
        if isinstance(content, list):
            yield from _part_violations(field, content)
        elif content is not None and not isinstance(content, str):
            yield Violation(
                field=field,
                description=f"must be a text or a list of parts {_TEXT_PART}, {_got(content)}",
            )


_TEXT_PART = '{"type": "text", "text": "..."}'


def _part_violations(field: str, parts: Sequence[object]) -> Iterator[Violation]:
    for index, part in enumerate(parts):
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind != "text":
            description = f"must be of type 'text', as models here read nothing else, {_got(kind)}"
            yield Violation(field=f"{field}[{index}]", description=description)
        elif not isinstance(part, dict) or kind is None or not isinstance(part.get("text"), str):
            description = f"must be a part {_TEXT_PART}, {_got(part)}"
            yield Violation(field=f"{field}[{index}]", description=description)


def _got(value: object) -> str:
    return f"got {shortened(repr(value), 100)}"

"""Conversations put into the form that a chat template reads.

Templates differ in where they look for tools, in the roles they know, and in whether they take
lists of parts. A template silently drops everything that it does not read. So a conversation is
changed to the form that the template reads, or refused.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from shaperouter_service.conversation import MessageFormat, TemplateNames
from shaperouter_service.generation.chat import Chat

# A role of OpenAI that most templates lack, and what it becomes there, as vLLM has it.
_DEVELOPER, _SYSTEM = "developer", "system"
# The name that SmolLM3's template has for tools.
_XML_TOOLS = "xml_tools"


class ChatTemplateError(Exception):
    """A chat template cannot render a conversation; the message says why.

    Attributes:
        field: The field of the request that it cannot render.
    """

    def __init__(self, message: str, field: str = "messages") -> None:
        """Takes the reason."""
        super().__init__(message)
        self.field = field


def adapted(chat: Chat, names: TemplateNames, form: MessageFormat, *, takes_parts: bool) -> Chat:
    """Puts a conversation into the form that a template reads.

    Args:
        chat: A valid conversation.
        names: What the template reads.
        form: How the model writes messages.
        takes_parts: Whether the template takes lists of parts.

    Raises:
        ChatTemplateError: The template has no place for something.
    """
    for name in chat.template_arguments.keys() - names.variables:
        raise ChatTemplateError(f"it does not read {name}", f"chat_template_kwargs.{name}")
    messages = list(chat.messages)
    if not takes_parts:
        messages = list(map(_with_one_text, messages))
    if _DEVELOPER not in names.fields:
        messages = _without_developers(messages)
    if "tool_calls" not in names.fields:
        messages = [_with_written_calls(each, form) for each in messages]
    tools, arguments = chat.tools, chat.template_arguments
    if tools and "tools" not in names.variables:
        if _XML_TOOLS in names.variables:
            arguments = {**arguments, _XML_TOOLS: list(tools)}
        elif "tools" in names.fields:
            messages = _with_tools(messages, tools)
        else:
            raise ChatTemplateError("it has no place for tools", "tools")
        tools = ()
    return replace(chat, messages=messages, tools=tools, template_arguments=arguments)


def _with_one_text(message: Mapping[str, Any]) -> Mapping[str, Any]:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": "\n".join(part["text"] for part in content)}


def _without_developers(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Gives developers the role of the system, which has one message where it had several."""
    if all(message.get("role") != _DEVELOPER for message in messages):
        return list(messages)
    renamed: list[Mapping[str, Any]] = []
    for message in messages:
        if message.get("role") not in (_DEVELOPER, _SYSTEM):
            renamed.append(message)
            continue
        message = {**message, "role": _SYSTEM}
        # Many templates accept a system message only as the first one.
        if len(renamed) == 1 and renamed[0].get("role") == _SYSTEM:
            message["content"] = _both(renamed.pop().get("content"), message.get("content"))
        renamed.append(message)
    return renamed


def _both(before: Any, after: Any) -> Any:
    if isinstance(before, list) or isinstance(after, list):
        return [*_parts(before), *_parts(after)]
    return "\n\n".join(filter(None, (before, after)))


def _parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content or ""}]


def _with_written_calls(message: Mapping[str, Any], form: MessageFormat) -> Mapping[str, Any]:
    """Writes the calls of an earlier answer into its text, as the model would have."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    if form.calls is None:
        raise ChatTemplateError("it has no place for tool_calls")
    if not isinstance(calls, list) or not all(isinstance(call, Mapping) for call in calls):
        raise ChatTemplateError("tool_calls must be a list of objects")
    functions = [call.get("function") or call for call in calls]
    if not all(isinstance(function, Mapping) for function in functions):
        raise ChatTemplateError("the function of each of tool_calls must be an object")
    text = form.calls.written(
        [{name: each.get(name) for name in ("name", "arguments")} for each in functions]
    )
    content = message.get("content") or ""
    others = {name: value for name, value in message.items() if name != "tool_calls"}
    if isinstance(content, list):
        return {**others, "content": [*content, {"type": "text", "text": text}]}
    return {**others, "content": f"{content}\n{text}" if content else text}


def _with_tools(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Gives tools to the message of the system, where Phi-4-mini's template has them."""
    first, *others = messages
    if first.get("role") != _SYSTEM:
        first, others = {"role": _SYSTEM, "content": ""}, [first, *others]
    functions = [tool.get("function", tool) for tool in tools]
    return [{**first, "tools": json.dumps(functions, ensure_ascii=False)}, *others]

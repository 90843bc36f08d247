"""Messages of chat completions, in the form that chat templates read."""

from typing import Any

from shaperouter_service.edge.http.openai.fields import Fields, told
from shaperouter_service.system.strict_json import parse

# Fields of OpenAI's messages that no template reads.
_UNREADABLE = ("audio", "function_call", "refusal")


def take_messages(fields: Fields) -> list[dict[str, Any]]:
    """Takes the messages of a chat completion."""
    given = fields.objects("messages")
    if not given and not fields.violations:
        fields.refuse("messages", "must have at least one message, got none")
    return [_message(fields, f"messages[{index}]", each) for index, each in enumerate(given)]


def _message(fields: Fields, place: str, given: dict[str, Any]) -> dict[str, Any]:
    # Clients send back what they received, with nulls for what a message lacks.
    message = {name: value for name, value in given.items() if value not in (None, [])}
    if "content" not in given and given.get("role") != "assistant":
        fields.refuse(f"{place}.content", "is required")
    message.setdefault("content", "")
    for name in _UNREADABLE:
        if name in message:
            fields.refuse(f"{place}.{name}", f"is not supported, got {told(message[name])}")
    calls = message.get("tool_calls")
    if calls is not None:
        if not isinstance(calls, list):
            fields.refuse(f"{place}.tool_calls", f"must be a list, got {told(calls)}")
        else:
            message["tool_calls"] = [
                _tool_call(fields, f"{place}.tool_calls[{index}]", call)
                for index, call in enumerate(calls)
            ]
    return message


def _tool_call(fields: Fields, place: str, given: Any) -> dict[str, Any]:
    call = given if isinstance(given, dict) else {}
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    if not isinstance(function.get("name"), str):
        fields.refuse(place, f"must be a call of a function with a name, got {told(given)}")
        return {}
    arguments = parsed_arguments(fields, f"{place}.function.arguments", function.get("arguments"))
    return tool_call(call.get("id"), function["name"], arguments)


def tool_call(call_id: Any, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """An earlier call as templates read it."""
    function = {"name": name, "arguments": arguments}
    known = {} if call_id is None else {"id": call_id}
    return {**known, "type": "function", "function": function}


def parsed_arguments(fields: Fields, place: str, given: Any) -> dict[str, Any]:
    """The arguments of an earlier call, which templates read as an object."""
    try:
        # Some clients send no text for a call without arguments.
        arguments = parse(given or "{}") if isinstance(given, str) else None
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        rule = "must be a text with a JSON object"
        fields.refuse(place, f"{rule}, got {told(given)}")
        return {}
    return arguments

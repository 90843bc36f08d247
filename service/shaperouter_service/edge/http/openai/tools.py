"""Tools of a request, and which of them an answer may call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shaperouter_service.edge.http.openai.fields import Fields, told

# What templates do not read, and what only Responses have beside the function.
_NOT_FUNCTION = ("strict", "type")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The tools of a request.

    Attributes:
        offered: Those that the model may call, in the form of chat completions.
        parallel: Whether an answer may call several.
    """

    offered: Sequence[dict[str, Any]]
    parallel: bool


def take_tools(fields: Fields, *, nested: bool) -> Tools:
    """Takes `tools`, `tool_choice` and `parallel_tool_calls`.

    Args:
        fields: The fields, which note what is wrong.
        nested: Whether a tool has its function in a field, as in chat completions.
    """
    tools = []
    for index, given in enumerate(fields.objects("tools")):
        field = f"tools[{index}]"
        if given.get("type") != "function":
            kind = told(given.get("type"))
            fields.refuse(f"{field}.type", f"must be 'function', got {kind}")
            continue
        function = given.get("function") if nested else given
        place = f"{field}.function" if nested else field
        if tool := _function(fields, place, function):
            tools.append({"type": "function", "function": tool})
    parallel = fields.take("parallel_tool_calls")
    if not isinstance(parallel, bool | None):
        fields.refuse("parallel_tool_calls", f"must be true or false, got {told(parallel)}")
    offers = _is_auto(fields)
    return Tools(offered=tools if offers else (), parallel=parallel is not False)


def _function(fields: Fields, place: str, given: Any) -> dict[str, Any] | None:
    function = given if isinstance(given, Mapping) else {}
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not name:
        fields.refuse(f"{place}.name", f"must be a text that is not empty, got {told(name)}")
    elif not isinstance(parameters, dict | None):
        fields.refuse(f"{place}.parameters", f"must be an object, got {told(parameters)}")
    elif function.get("strict") not in (None, False):
        rule = "must be false, as answers are not held to a schema"
        fields.refuse(f"{place}.strict", f"{rule}, got {told(function['strict'])}")
    else:
        return {
            key: value
            for key, value in function.items()
            if value is not None and key not in _NOT_FUNCTION
        }
    return None


def _is_auto(fields: Fields) -> bool:
    """Whether the model may call tools. It cannot be held to call one."""
    choice = fields.take("tool_choice")
    if choice in (None, "auto"):
        return True
    if choice != "none":
        rule = "must be 'auto' or 'none', as models cannot be held to call a tool"
        fields.refuse("tool_choice", f"{rule}, got {told(choice)}")
    return False

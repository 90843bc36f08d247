"""Tools of a request, and which of them an answer may call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shaperouter_service.edge.http.openai.fields import Fields, told

# Fields that templates do not read, and fields that only Responses have beside the function.
# Clients make `strict` true of their own accord, but a call always follows its schema only if one
# is required.
_NOT_FUNCTION = ("strict", "type")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The tools of a request.

    Attributes:
        offered: Those that the model may call, in the form of chat completions.
        parallel: Whether an answer may call several.
        must_call: An answer must call one of these names; empty if no call is required.
    """

    offered: Sequence[dict[str, Any]]
    parallel: bool
    must_call: Sequence[str] = ()


def take_tools(fields: Fields, *, nested: bool) -> Tools:
    """Takes `tools`, `tool_choice` and `parallel_tool_calls`.

    Args:
        fields: The fields, which note what is wrong.
        nested: Whether a tool has its function in a field, as in chat completions.
    """
    tools: list[dict[str, Any]] = []
    choice = fields.take("tool_choice")
    is_held = choice not in (None, "auto", "none")
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
    chosen = _chosen(fields, choice, nested=nested)
    names = [tool["function"]["name"] for tool in tools]
    if is_held and not (chosen is None or chosen in names):
        fields.refuse("tool_choice", f"must name one of tools, got {told(chosen)}")
    if choice == "required" and not tools:
        fields.refuse("tool_choice", "must not be 'required' without tools")
    return Tools(
        offered=() if choice == "none" else tools,
        parallel=parallel is not False and chosen is None,
        must_call=names if choice == "required" else [chosen] if chosen else (),
    )


def _function(fields: Fields, place: str, given: Any) -> dict[str, Any] | None:
    """A function.

    Args:
        fields: The fields, which note what is wrong.
        place: Where it is.
        given: The function as received.
    """
    function = given if isinstance(given, Mapping) else {}
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not name:
        fields.refuse(f"{place}.name", f"must be a text that is not empty, got {told(name)}")
    elif not isinstance(parameters, dict | None):
        fields.refuse(f"{place}.parameters", f"must be an object, got {told(parameters)}")
    elif not isinstance(function.get("strict"), bool | None):
        fields.refuse(f"{place}.strict", f"must be true or false, got {told(function['strict'])}")
    else:
        return {
            key: value
            for key, value in function.items()
            if value is not None and key not in _NOT_FUNCTION
        }
    return None


def _chosen(fields: Fields, choice: Any, *, nested: bool) -> str | None:
    """The only tool that an answer may call, which it must; None if the choice names none."""
    if choice in (None, "auto", "none", "required"):
        return None
    named = choice if isinstance(choice, Mapping) and choice.get("type") == "function" else {}
    function = named.get("function") if nested else named
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        rule = "must be 'auto', 'none', 'required' or a function"
        fields.refuse("tool_choice", f"{rule}, got {told(choice)}")
        return None
    return name

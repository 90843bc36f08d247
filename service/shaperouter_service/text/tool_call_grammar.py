"""The grammar of calls of tools."""

import json
from collections.abc import Mapping
from typing import Any

from shaperouter_service.conversation import CallFormat
from shaperouter_service.text.constraints import with_whitespace


def tool_call_grammar(
    form: CallFormat,
    tools: Mapping[str, Mapping[str, Any]],
    *,
    is_single: bool,
    beside_text: bool = False,
) -> str:
    """Writes a grammar of calls, in Lark's syntax.

    Args:
        form: How the model writes calls.
        tools: JSON schemas of arguments, by the name of the tool.
        is_single: Whether an answer has one call; otherwise it may have more.
        beside_text: Whether an answer may be a text instead. A call without a mark is then one
            JSON schema: a fixed text would take precedence over JSON that begins the same way.
    """
    frame, rules = form.frame, []
    for index, (name, schema) in enumerate(tools.items()):
        if beside_text and not frame.begin:
            rules.append(f"call_{index}: %json {json.dumps(_whole_call(form, name, schema))}")
            continue
        begin = f'{{"name": {json.dumps(name, ensure_ascii=False)}, "{form.arguments}": '
        rules.append(f"call_{index}: {json.dumps(begin)} arguments_{index} " + '"}"')
        rules.append(f"arguments_{index}: %json {json.dumps(with_whitespace(schema))}")
    calls = " | ".join(f"call_{index}" for index in range(len(tools)))
    more = "" if is_single else f"({json.dumps(frame.between)} call)*"
    parts = [json.dumps(frame.begin) if frame.begin else "", "call", more]
    parts.append(json.dumps(frame.end) if frame.end else "")
    start = " ".join(filter(None, parts))
    return "\n".join([f"start: {start}", f"call: {calls}", *rules])


def _whole_call(form: CallFormat, name: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON schema of a call with its name and arguments."""
    # With an id of its own, the arguments' schema is the root that its references mean. In drafts
    # that ignore the id, they mean the whole call, which therefore has the definitions, too.
    arguments = {"$id": "json-schema:///arguments", **schema}
    definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    whole: Mapping[str, Any] = with_whitespace(
        {
            "type": "object",
            "properties": {"name": {"const": name}, form.arguments: arguments},
            "required": ["name", form.arguments],
            "additionalProperties": False,
            **definitions,
        }
    )
    return whole

"""The grammar of answers that must call a tool."""

import json
from collections.abc import Mapping
from typing import Any

from shaperouter_service.conversation import CallFormat
from shaperouter_service.text.constraints import with_whitespace


def tool_call_grammar(
    form: CallFormat, tools: Mapping[str, Mapping[str, Any]], *, is_single: bool
) -> str:
    """Writes a grammar of calls, in Lark's syntax.

    Args:
        form: How the model writes calls.
        tools: JSON schemas of arguments, by the name of the tool.
        is_single: Whether an answer has one call; otherwise it may have more.
    """
    frame, rules = form.frame, []
    for index, (name, schema) in enumerate(tools.items()):
        begin = f'{{"name": {json.dumps(name, ensure_ascii=False)}, "{form.arguments}": '
        rules.append(f"call_{index}: {json.dumps(begin)} arguments_{index} " + '"}"')
        rules.append(f"arguments_{index}: %json {json.dumps(with_whitespace(schema))}")
    calls = " | ".join(f"call_{index}" for index in range(len(tools)))
    more = "" if is_single else f"({json.dumps(frame.between)} call)*"
    parts = [json.dumps(frame.begin) if frame.begin else "", "call", more]
    parts.append(json.dumps(frame.end) if frame.end else "")
    start = " ".join(filter(None, parts))
    return "\n".join([f"start: {start}", f"call: {calls}", *rules])

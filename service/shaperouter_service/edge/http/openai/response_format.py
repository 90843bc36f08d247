"""The required format of an answer, in chat completions and responses, as a JSON schema."""

import json
from typing import Any

from shaperouter_service.edge.http.openai.fields import Fields, told

FIELD = "response_format"


def add_schema(fields: Fields, options: dict[str, Any]) -> None:
    """Adds the JSON schema of `response_format` to a request's options, if it has one."""
    given = Fields(fields.mapping(FIELD))
    kind, described = given.text("type"), Fields(given.mapping("json_schema"))
    schema = _schema(given, kind, described)
    fields.refuse_rest(FIELD, given)
    fields.refuse_rest(f"{FIELD}.json_schema", described)
    _add(fields, options, schema, FIELD, f"{FIELD}.json_schema.schema")


def add_text_schema(fields: Fields, options: dict[str, Any]) -> None:
    """Adds the JSON schema of a response's `text.format`, which has it in the format itself."""
    text = Fields(fields.mapping("text"))
    given = Fields(text.mapping("format"))
    kind = given.text("type")
    is_schema = kind == "json_schema"
    schema = _schema(given, kind, given if is_schema else Fields({}))
    text.only("verbosity", "medium")
    fields.refuse_rest("text.format", given)
    fields.refuse_rest("text", text)
    _add(fields, options, schema, "text.format", "text.format.schema")


def _schema(given: Fields, kind: str, described: Fields) -> dict[str, Any] | None:
    """The schema of a format.

    Args:
        given: The format.
        kind: Its type.
        described: The object that contains its schema.
    """
    match kind:
        case "" | "text":
            return None
        case "json_object":
            return {"type": "object"}
        case "json_schema":
            for name in ("name", "description"):
                described.text(name)
            # The answer follows the schema in any case.
            described.flag("strict")
            return described.mapping("schema")
        case _:
            rule = "must be 'text', 'json_object' or 'json_schema'"
            given.refuse("type", f"{rule}, got {told(kind)}")
            return None


def _add(
    fields: Fields, options: dict[str, Any], schema: dict[str, Any] | None, field: str, path: str
) -> None:
    if schema is None:
        return
    if "json_schema" in options:
        fields.refuse(field, "must not be set together with json_schema")
    options["json_schema"] = json.dumps(schema, ensure_ascii=False)
    fields.names["json_schema"] = path

"""The required format of an answer, in chat completions and responses, as a JSON schema."""

import json
from typing import Any

from shaperouter_service.edge.http.openai.fields import Fields, told

FIELD = "response_format"

_SCHEMA = "json_schema"
_TYPES = ("text", "json_object", _SCHEMA)


def add_schema(fields: Fields, options: dict[str, Any]) -> None:
    """Adds the JSON schema of `response_format` to a request's options, if it has one."""
    given, kind = _format(fields, FIELD)
    if kind == _SCHEMA and not given.has("json_schema"):
        given.refuse("json_schema", f"is required with type {_SCHEMA!r}")
        kind = ""
    described = Fields(given.mapping("json_schema"))
    schema = _schema(kind, described)
    fields.refuse_rest(FIELD, given)
    fields.refuse_rest(f"{FIELD}.json_schema", described)
    _add(fields, options, schema, FIELD, f"{FIELD}.json_schema.schema")


def add_text_schema(fields: Fields, options: dict[str, Any]) -> None:
    """Adds the JSON schema of a response's `text.format`, which has it in the format itself."""
    text = Fields(fields.mapping("text"))
    given, kind = _format(text, "format")
    schema = _schema(kind, given)
    text.only("verbosity", "medium")
    fields.refuse_rest("text.format", given)
    fields.refuse_rest("text", text)
    _add(fields, options, schema, "text.format", "text.format.schema")


def _format(fields: Fields, name: str) -> tuple[Fields, str]:
    """A format and its type; without a known type, neither has anything."""
    value = fields.take(name)
    if isinstance(value, dict):
        given = Fields(value)
        kind = given.take("type")
        if kind in _TYPES:
            return given, kind
        got = "none" if kind is None else told(kind)
        fields.refuse(f"{name}.type", f"must be 'text', 'json_object' or 'json_schema', got {got}")
    elif value is not None:
        fields.refuse(name, f"must be an object, got {told(value)}")
    return Fields({}), ""


def _schema(kind: str, described: Fields) -> dict[str, Any] | None:
    """The schema of a format.

    Args:
        kind: Its type.
        described: The object that contains its schema.
    """
    if kind == "json_object":
        return {"type": "object"}
    if kind != _SCHEMA:
        return None
    if not described.has("schema"):
        described.refuse("schema", f"is required with type {_SCHEMA!r}")
    for name in ("name", "description"):
        described.text(name)
    # The answer follows the schema in any case.
    described.flag("strict")
    return described.mapping("schema")


def _add(
    fields: Fields, options: dict[str, Any], schema: dict[str, Any] | None, field: str, path: str
) -> None:
    if schema is None:
        return
    if "json_schema" in options:
        fields.refuse(field, "must not be set together with json_schema")
    options["json_schema"] = json.dumps(schema, ensure_ascii=False)
    fields.names["json_schema"] = path

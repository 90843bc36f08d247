"""What an answer must look like: `response_format` as a JSON schema."""

import json
from typing import Any

from shaperouter_service.edge.http.openai.fields import Fields, told
from shaperouter_service.errors import InvalidRequestError

FIELD = "response_format"


def add_schema(fields: Fields, options: dict[str, Any]) -> None:
    """Adds the JSON schema of a request's format to its options, if it has one."""
    given = Fields(fields.mapping(FIELD))
    kind, described = given.text("type"), Fields(given.mapping("json_schema"))
    schema: dict[str, Any] | None = None
    match kind:
        case "" | "text":
            pass
        case "json_object":
            schema = {"type": "object"}
        case "json_schema":
            for name in ("name", "description"):
                described.text(name)
            # The answer follows the schema in any case.
            described.flag("strict")
            schema = described.mapping("schema")
        case _:
            rule = "must be 'text', 'json_object' or 'json_schema'"
            given.refuse("type", f"{rule}, got {told(kind)}")
    _refuse_rest(fields, FIELD, given)
    _refuse_rest(fields, f"{FIELD}.json_schema", described)
    if schema is None:
        return
    if "json_schema" in options:
        fields.refuse(FIELD, "must not be set together with json_schema")
    options["json_schema"] = json.dumps(schema, ensure_ascii=False)
    fields.names["json_schema"] = f"{FIELD}.json_schema.schema"


def _refuse_rest(fields: Fields, path: str, part: Fields) -> None:
    """Refuses what is wrong or unknown in a part of the request."""
    try:
        part.end()
    except InvalidRequestError as error:
        for each in error.violations:
            fields.refuse(f"{path}.{each.field}", each.description)

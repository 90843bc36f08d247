"""What a chat template reads: its variables, and the fields and roles of messages."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache

import jinja2


@dataclass(frozen=True, kw_only=True)
class TemplateNames:
    """The names in a template's code, not in the text that it writes.

    Attributes:
        variables: Names of variables, such as `tools` and `enable_thinking`.
        fields: Names of fields, and all texts in the code, such as `tool_calls` and `developer`.
    """

    variables: AbstractSet[str]
    fields: AbstractSet[str]


@lru_cache(maxsize=64)
def template_names(template: str) -> TemplateNames:
    """Finds the names in a template; none in one that Jinja cannot read."""
    variables: set[str] = set()
    fields: set[str] = set()
    before = ""
    try:
        for _, kind, value in jinja2.Environment().lex(template):  # noqa: S701 (renders nothing)
            if kind == "string":
                fields.add(value[1:-1])
            elif kind == "name":
                (fields if before == "." else variables).add(value)
            if kind != "whitespace":
                before = value
    except jinja2.TemplateSyntaxError:
        pass
    return TemplateNames(variables=variables, fields=fields)

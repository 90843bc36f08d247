"""Constraints of requests as grammars: JSON schemas, regular expressions, choices and grammars.

`llguidance` reads and enforces them. A grammar is checked here, before a worker sees it: routers do
it in a `GrammarProcess`. The worker follows it in `token_masks`.
"""

import json
import re
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from shaperouter_service.system.strict_json import parse

# The options that constrain the text; a request has at most one of them.
CONSTRAINTS = frozenset({"json_schema", "regex", "choices", "grammar"})

# Whitespace between the parts of JSON. Unbounded, small models write nothing else any more.
_WHITESPACE = r"\r?\n[ \t]{0,32}|[ \t]{1,2}"
# The key of options in schemas that are llguidance's own.
_GUIDANCE = "x-guidance"
# Maximum parts of a schema that are tried to find the one that is wrong, and the seconds for it.
_MAX_PARTS = 256
_MAX_SEARCH = 1.0
# Keywords of JSON schemas whose values are schemas: by name, in a list, or one.
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTED = ("anyOf", "allOf", "oneOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then")


class ConstraintError(ValueError):
    """A constraint cannot be used.

    Attributes:
        path: Where in the option's value, e.g. `.properties.age`; empty for all of it.
    """

    def __init__(self, rule: str, path: str = "") -> None:
        """Says what is wrong."""
        super().__init__(rule)
        self.path = path


def grammar_of(
    name: str, value: str | tuple[str, ...], *, drops_first_space: bool, calls: str = ""
) -> str:
    """Makes a grammar of an option, and checks it.

    Args:
        name: One of `CONSTRAINTS`.
        value: The option, within its limits.
        drops_first_space: Whether a text loses a space at its beginning when it is detokenized, so
            that its tokens may have one more than the grammar.
        calls: A grammar in Lark's syntax that the text may follow instead; empty for none.

    Raises:
        ConstraintError: The constraint is malformed, too large, or can never be met.
    """
    schema = None
    match name:
        case "json_schema":
            schema = _schema(str(value))
            inner = {"json_schema": with_whitespace(schema)}
        case "regex":
            inner = {"lark_grammar": _lark(LLMatcher.grammar_from_regex(str(value)))}
        case "choices":
            options = " | ".join(json.dumps(each) for each in value)
            inner = {"lark_grammar": f"start: {options}"}
        case _:
            inner = {"lark_grammar": str(value)}
    if error := _error_of(json.dumps({"grammars": [inner]})):
        raise ConstraintError(error) if schema is None else _deepest(schema, error)
    space = '" "? ' if drops_first_space else ""
    if calls:
        grammars = [
            {"lark_grammar": f"start: {space}(@text | @calls)"},
            {"name": "text", **inner},
            {"name": "calls", "lark_grammar": calls},
        ]
        if error := _error_of(json.dumps({"grammars": grammars})):
            raise ConstraintError(f"{error} (together with the calls of tools)")
    elif space:
        grammars = [{"lark_grammar": f"start: {space}@text"}, {"name": "text", **inner}]
    else:
        grammars = [inner]
    return json.dumps({"grammars": grammars})


def _schema(text: str) -> Any:
    try:
        schema = parse(text)
    except ValueError as error:
        raise ConstraintError(f"must be a JSON schema: {error}") from None
    if not isinstance(schema, dict | bool):
        raise ConstraintError(f"must be a JSON object, true or false, got {type(schema).__name__}")
    if schema is False:
        # It has no place for our whitespace, with which it would allow everything.
        raise ConstraintError(_error_of(_json_grammar(schema)))
    guidance = schema.get(_GUIDANCE, {}) if isinstance(schema, dict) else {}
    if not isinstance(guidance, dict):
        kind = type(guidance).__name__
        raise ConstraintError(f"must be a JSON object, got {kind}", f".{_GUIDANCE}")
    return schema


def with_whitespace(schema: Any) -> Any:
    """The schema with our whitespace, unless it sets its own in llguidance's way."""
    fields = schema if isinstance(schema, dict) else {}
    return {
        **fields,
        _GUIDANCE: {"whitespace_pattern": _WHITESPACE, **fields.get(_GUIDANCE, {})},
    }


def _json_grammar(schema: Any) -> str:
    return json.dumps({"grammars": [{"json_schema": schema}]})


def _lark(grammar: str) -> str:
    """The text of a grammar that llguidance has made in Lark's syntax."""
    text: str = json.loads(grammar)["grammars"][0]["lark_grammar"]
    return text


@lru_cache(maxsize=1)
def _bytes() -> LLTokenizer:
    """A vocabulary of single bytes, which every tokenizer's texts consist of."""
    return LLTokenizer("byte")


def _error_of(grammar: str) -> str:
    """What is wrong with a grammar; empty if it can be used."""
    matcher = LLMatcher(_bytes(), grammar, log_level=0)
    allowed = 0
    if not matcher.is_error():
        # Some limits and contradictions show up only here.
        allowed = int.from_bytes(matcher.compute_bitmask(), "little")
    if matcher.is_error():
        return f"cannot be used: {in_words(matcher.get_error())}"
    for token in _bytes().eos_tokens:
        allowed &= ~(1 << token)
    return "" if allowed else "must allow a text that is not empty"


def in_words(error: str) -> str:
    """An error of llguidance in one line, without the state that it adds to it."""
    if error.startswith("panic"):
        # A limit of its tables; what follows is Rust's.
        return "it is too large"
    if not error or error.startswith("NoExtension"):
        return "nothing that it allows may follow"
    return re.sub(r"\s+", " ", error.partition("<state>")[0]).strip()


def _deepest(schema: Any, error: str) -> ConstraintError:
    """The error of the innermost part of a schema that is wrong by itself."""
    path, definitions = "", {}
    if isinstance(schema, dict):
        names = ("$defs", "definitions", "$schema")
        definitions = {name: schema[name] for name in names if name in schema}
    tried, until = 0, time.monotonic() + _MAX_SEARCH
    while True:
        for step, part in _parts(schema):
            tried += 1
            if tried > _MAX_PARTS or time.monotonic() > until:
                return ConstraintError(error, path)
            whole = {**definitions, **part} if isinstance(part, dict) else part
            found = _error_of(_json_grammar(whole))
            # A definition that only the whole schema has is not missing.
            if found and "does not exist" not in found:
                path, schema, error = path + step, part, found
                break
        else:
            return ConstraintError(error, path)


def _parts(schema: Any) -> Iterator[tuple[str, Any]]:
    """The schemas directly within a schema, each with its path."""
    if not isinstance(schema, dict):
        return
    for name in _NAMED:
        parts = schema.get(name)
        if isinstance(parts, dict):
            yield from ((f".{name}.{key}", part) for key, part in parts.items())
    for name in _LISTED:
        parts = schema.get(name)
        if isinstance(parts, list):
            yield from ((f".{name}[{index}]", part) for index, part in enumerate(parts))
    for name in _SINGLE:
        if isinstance(schema.get(name), dict):
            yield f".{name}", schema[name]

"""The names in PromQL expressions: not a parser, but strict about the syntax that it knows."""

from __future__ import annotations

import re
from collections.abc import Iterator

_KEYWORDS = {"and", "or", "unless", "offset", "bool", "inf", "nan"}
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*\{([^}]*)\}")
_LABEL = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)")


def series_of(expression: str) -> set[str]:
    """The series that an expression reads."""
    text = re.sub(r'"[^"]*"', '""', expression)
    text = re.sub(r"\{[^}]*\}", " ", text)
    text = _GROUPING.sub(" ", text)
    text = re.sub(r"\[[^\]]*\]", " ", text)
    text = re.sub(r"\b\d+(?:\.\d+)?(?:ms|[smhdwy])?\b", " ", text)
    names = re.finditer(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\s*\()?", text)
    return {name[1] for name in names if not name[2] and name[1] not in _KEYWORDS}


def labels_of(expression: str) -> Iterator[tuple[str, set[str]]]:
    """The series that an expression selects by labels, with the labels."""
    for selector in _SELECTOR.finditer(expression):
        yield selector[1], set(_LABEL.findall(re.sub(r'"[^"]*"', '""', selector[2])))


def groupings_of(expression: str) -> set[str]:
    """The labels that an expression groups or matches by."""
    lists = (part.split(",") for part in _GROUPING.findall(expression))
    return {label.strip() for labels in lists for label in labels if label.strip()}

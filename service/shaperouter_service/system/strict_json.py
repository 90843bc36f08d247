"""JSON from callers, read strictly."""

import json
import math
import re
from collections import Counter
from itertools import accumulate
from typing import Any, NoReturn

# The beginning of an escape that may stand for half of a character.
_SURROGATE = "\\ud"
# Maximum nesting of brackets. Code that prints or encodes a value recurses once for each level, and
# Python allows about 1,000 levels, including those of the request handler.
MAX_DEPTH = 200
# All that is no bracket, with brackets in texts. A text without an end takes the rest: otherwise
# each further quotation mark would be tried as the beginning of one.
_NO_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[^][{}"]++', re.DOTALL)
# Maximum characters of a name in an error.
_SHOWN = 64


def parse(text: str) -> Any:
    """Parses JSON.

    Raises:
        ValueError: It is not JSON, a name occurs twice in an object, a number is not finite or has
            thousands of digits, a text is not Unicode, or brackets are nested too deep.
    """
    if (depth := _depth(text)) > MAX_DEPTH:
        raise ValueError(f"brackets must be nested at most {MAX_DEPTH} deep, got {depth}")
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_float
        )
        if _SURROGATE in text.lower():
            # A text that cannot be encoded would fail later, where nobody expects it.
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise ValueError(f"texts must be Unicode, got {half!r} alone") from error
    return value


def _depth(text: str) -> int:
    """How deep the brackets of JSON are nested, or an upper bound that is within the limit."""
    openings = text.count("[") + text.count("{")
    if openings <= MAX_DEPTH:
        return openings
    steps = {"[": 1, "{": 1, "]": -1, "}": -1}
    return max(accumulate(steps.get(each, 0) for each in _NO_BRACKETS.sub("", text)), default=0)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = Counter(name for name, _ in pairs)
        ((twice, _),) = names.most_common(1)
        raise ValueError(f"{twice[:_SHOWN]!r} occurs twice in an object")
    return found


def _float(digits: str) -> float:
    value = float(digits)
    # Python reads 1e999 as infinity.
    if not math.isfinite(value):
        _refuse_constant(digits[:_SHOWN])
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"numbers must be finite, got {name}")

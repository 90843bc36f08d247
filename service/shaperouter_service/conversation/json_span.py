"""Where a JSON object or array ends in a text that arrives in pieces."""

import re

_IN_STRING = re.compile(r'[^"\\]*')
# Numbers, literals and what separates values. Whether they are in order is found out at the end.
_BETWEEN = re.compile(r"[\s0-9eE+\-.,:truefalsn]*")
_BRACKETS = {"{": "}", "[": "]"}


class JsonSpan:
    """Follows the brackets of one object or array, which may have spaces before it."""

    def __init__(self, opening: str) -> None:
        """Starts before the value.

        Args:
            opening: The bracket that begins it: `{` or `[`.
        """
        self._opening = opening
        self._closings: list[str] = []
        self._in_string = False
        self._is_escaped = False

    def push(self, text: str) -> int | None:
        """Takes more text; returns the index in it where the value ends, or None before the end.

        Raises:
            ValueError: A character cannot be part of such a value.
        """
        at = 0
        while at < len(text):
            if not self._closings:
                at += len(text) - at - len(text[at:].lstrip())
                if at == len(text):
                    return None
                if text[at] != self._opening:
                    raise ValueError(f"{text[at]!r} is no {self._opening!r}")
                self._closings.append(_BRACKETS[self._opening])
                at += 1
            elif self._in_string:
                at = self._through_string(text, at)
            else:
                at = self._through_values(text, at)
                if not self._closings:
                    return at
        return None

    def _through_string(self, text: str, at: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            return at + 1
        found = _IN_STRING.match(text, at)
        at = found.end() if found else at
        if at < len(text):
            self._is_escaped = text[at] == "\\"
            self._in_string = self._is_escaped
            at += 1
        return at

    def _through_values(self, text: str, at: int) -> int:
        found = _BETWEEN.match(text, at)
        at = found.end() if found else at
        if at == len(text):
            return at
        character = text[at]
        if character == '"':
            self._in_string = True
        elif character in _BRACKETS:
            self._closings.append(_BRACKETS[character])
        elif character == self._closings[-1]:
            self._closings.pop()
        else:
            raise ValueError(f"{character!r} is out of place")
        return at + 1

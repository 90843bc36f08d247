"""Stop strings in a growing text."""

from collections.abc import Sequence


class StopMatcher:
    """Finds the first stop string in a text that arrives in pieces.

    The first is the one that ends first; of those that end together, the one that begins first. So
    the result does not depend on how the text is cut into pieces. Text that may begin a stop string
    is held back until that is certain. The returned pieces, joined, are the text before the match,
    or all of it.

    Attributes:
        matched: Whether a stop string was found. All text after it is ignored.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        """Starts with an empty text.

        Args:
            stop: The stop strings, none of them empty. Without any, all text passes at once.
        """
        self.matched = False
        self._stop = stop
        self._held = ""

    def push(self, piece: str) -> str:
        """Takes more text and returns what can no longer be part of a stop string; may be empty."""
        if self.matched:
            return ""
        text = self._held + piece
        found = [
            (start + len(stop), start) for stop in self._stop if (start := text.find(stop)) >= 0
        ]
        if found:
            self.matched, self._held = True, ""
            return text[: min(found)[1]]
        end = min((_partial_match(stop, text) for stop in self._stop), default=len(text))
        self._held = text[end:]
        return text[:end]

    def finish(self) -> str:
        """Returns the rest of the text, which contains no stop string."""
        rest, self._held = self._held, ""
        return rest


def _partial_match(stop: str, text: str) -> int:
    """Index of the longest suffix of `text` that is a prefix of `stop`."""
    start = text.find(stop[0], max(0, len(text) - len(stop) + 1))
    while start >= 0 and not stop.startswith(text[start:]):
        start = text.find(stop[0], start + 1)
    return start if start >= 0 else len(text)

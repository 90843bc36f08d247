"""What a name that is unknown may have been meant for."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like a name; None if none is."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return found[0] if found else None

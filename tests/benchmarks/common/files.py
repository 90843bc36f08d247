"""Raw figures as readable JSON."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# A list of numbers and nulls only.
NUMBERS = re.compile(r"\[[^][{}\"]*]")


def write_figures(figures: Mapping[str, Any], path: Path) -> None:
    """Writes the file, with each list of numbers on one line."""
    text = json.dumps(_rounded(figures), indent=1)
    text = NUMBERS.sub(lambda found: " ".join(found.group().split()), text)
    path.write_text(text + "\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    """Rounds to microseconds, which is finer than measurements repeat."""
    match value:
        case float():
            return round(value, 6)
        case dict():
            return {key: _rounded(inner) for key, inner in value.items()}
        case list():
            return [_rounded(inner) for inner in value]
        case _:
            return value

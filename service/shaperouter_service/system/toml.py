"""TOML from files whose author may be a stranger."""

import tomllib
from typing import Any


def parse(text: str) -> dict[str, Any]:
    """Parses TOML.

    Raises:
        ValueError: It is not TOML, or brackets are nested too deep.
    """
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("brackets are nested too deep") from error

"""Reading of JSON files from other programs."""

import json
from pathlib import Path
from typing import Any

from shaperouter_service.errors import StartupError


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        StartupError: The file is missing, is not JSON, or contains no object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartupError(f"{path}: cannot be read: {error.strerror}") from error
    # Python raises the second error for thousands of nested brackets.
    except (ValueError, RecursionError) as error:
        raise StartupError(f"{path}: is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise StartupError(f"{path}: must hold a JSON object, got {type(content).__name__}")
    return content

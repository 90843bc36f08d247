"""Programs and a model that tests use, which `make test` unpacks; see tests/tools/install.py."""

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import pytest

TOOLS = Path(__file__).parents[2] / ".venvs" / "tools" / "bin"
MODELS = TOOLS.parent / "models"


def tool(name: str) -> str:
    """The path of a program: unpacked, beside this Python, or on the PATH.

    If there is none, the test is skipped; in CI it fails.
    """
    places = [str(TOOLS), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        skip(f"{name} is not here: `make test` unpacks it on Debian; elsewhere, put it on the PATH")
    return found


def real_model(name: str) -> Path:
    """The directory of a model with real weights. Without it the test skips, but not in CI."""
    directory = MODELS / name
    if not directory.is_dir():
        skip(f"{name} is not here: `make test` unpacks it")
    return directory


def skip(message: str) -> NoReturn:
    """Skips a test, but where CI runs: there it fails."""
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)

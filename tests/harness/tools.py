"""Programs that tests run, which `make test` unpacks; see tests/tools/install.py."""

import os
import shutil
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / ".venvs" / "tools" / "bin"


def tool(name: str) -> str:
    """The path of a program: of those that were unpacked, or else on the PATH.

    Without it the test skips, but where CI runs: there it fails.
    """
    if found := shutil.which(name, path=f"{TOOLS}{os.pathsep}{os.environ.get('PATH', '')}"):
        return found
    message = f"{name} is not here: `make test` unpacks it on Debian; elsewhere, put it on the PATH"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)

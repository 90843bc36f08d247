"""Programs that tests run, which `make test` unpacks; see tests/tools/install.py."""

import os
import shutil
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / ".venvs" / "tools" / "bin"


def tool(name: str) -> str:
    """The path of a program: unpacked, beside this Python, or on the PATH.

    Without it the test skips, but where CI runs: there it fails.
    """
    places = [str(TOOLS), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    if found := shutil.which(name, path=os.pathsep.join(places)):
        return found
    message = f"{name} is not here: `make test` unpacks it on Debian; elsewhere, put it on the PATH"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)

"""The README's examples work as written."""

import re
from pathlib import Path

import pytest

from harness.service import kept_compilations, serving

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
ADDRESS = "127.0.0.1:50051"


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(BLOCKS) == 2
    with serving(env=kept_compilations()) as service:
        for block in BLOCKS:
            assert ADDRESS in block
            exec(block.replace(ADDRESS, service.address), {})
    assert "completion" in capsys.readouterr().out

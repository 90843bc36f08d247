"""The README's examples work as written."""

import re
from pathlib import Path

import pytest

from harness.other_clients import run_with_openai
from harness.service import Service

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
GRPC, HTTP = "127.0.0.1:50051", "http://127.0.0.1:8000"


def test_the_python_of_the_readme_runs(
    demo: Service, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert len(BLOCKS) == 3
    for block in BLOCKS:
        if HTTP in block:
            script = tmp_path / "script.py"
            script.write_text(block.replace(HTTP, demo.http_url))
            assert run_with_openai(str(script)).strip()
        else:
            assert GRPC in block
            exec(block.replace(GRPC, demo.address), {})
    assert "completion" in capsys.readouterr().out

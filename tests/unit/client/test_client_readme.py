"""The Python of the client's README runs as written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shaperouter import Client

if TYPE_CHECKING:
    from conftest import FakeShaperouter

README = Path(__file__).parents[3] / "client" / "README.md"
# Those about recordings and about models that answer once run against services of theirs: see
# test_client_transcription and test_client_inference.
BLOCKS = [
    block
    for block in re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    if not re.search(r"client\.(transcribe|infer|embed)", block)
]


@pytest.mark.parametrize("block", range(len(BLOCKS)))
def test_block_runs(
    fake: FakeShaperouter,
    client: Client,
    block: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SHAPEROUTER_ADDRESS", fake.address)
    code = BLOCKS[block].replace("127.0.0.1:50051", fake.address)
    exec(compile(code, "README.md", "exec"), {"client": client})
    assert " a library" in capsys.readouterr().out

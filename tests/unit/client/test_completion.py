"""Shell completion of the commands, as the README describes it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.waiting import TIMEOUT

README = Path(__file__).parents[3] / "client" / "README.md"
CALLS = re.findall(r"(_\w+_COMPLETE)=(\w+)_source (\w+)", README.read_text(encoding="utf-8"))


def complete(command: str, **variables: str) -> str:
    return subprocess.run(
        [Path(sys.executable).with_name(command)],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT,
    ).stdout


def test_readme_has_both_commands_for_each_shell() -> None:
    assert {(shell, command) for _, shell, command in CALLS} == {
        (shell, command)
        for shell in ("bash", "zsh", "fish")
        for command in ("shaperouter", "shaperouterd")
    }


@pytest.mark.parametrize(("variable", "shell", "command"), CALLS)
def test_completion_script_is_printed(variable: str, shell: str, command: str) -> None:
    script = complete(command, **{variable: f"{shell}_source"})
    assert f"{variable}={shell}_complete" in script


@pytest.mark.parametrize(
    ("command", "expected"), [("shaperouter", "generate"), ("shaperouterd", "serve")]
)
def test_commands_are_completed(command: str, expected: str) -> None:
    variable = f"_{command.upper()}_COMPLETE"
    words = {"COMP_WORDS": f"{command} {expected[:3]}", "COMP_CWORD": "1"}
    assert complete(command, **{variable: "bash_complete"} | words) == f"plain,{expected}\n"

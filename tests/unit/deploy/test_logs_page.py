"""docs/logs.md lists the events that the service logs, with their levels."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import shaperouter_service

PAGE = (Path(__file__).parents[3] / "docs" / "logs.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([^|]+)` \| ([^|]+) \| [^|]+ \| [^|]+ \|$", re.M)
# They have the level of their code, so that no call names it.
BY_CODE = {"request", "call refused"}


def logged() -> Iterator[tuple[str, str]]:
    """Event and level of each line that the code can log."""
    root = Path(*shaperouter_service.__path__)
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="log"), attr=level),
                    args=[ast.Constant(value=str(event)), *_],
                ):
                    yield event, "error" if level == "exception" else level


def defects() -> set[str]:
    """The events of the page's last paragraph."""
    paragraph = PAGE[PAGE.index("**defects of the service**") :].replace("\n", " ")
    return {event for event in re.findall(r"`([^`]+)`", paragraph) if event != "exc_info"}


def test_the_page_has_the_events_that_there_are() -> None:
    listed = [event for event, _ in ROW.findall(PAGE)]
    assert len(set(listed)) == len(listed)
    assert {*listed, *defects()} == {event for event, _ in logged()} | BY_CODE


def test_the_page_has_the_levels_of_events() -> None:
    levels = defaultdict(set)
    for event, level in logged():
        levels[event].add(level)
    for event, text in ROW.findall(PAGE):
        if event not in BY_CODE:
            assert set(re.findall(r"debug|info|warning|error|critical", text)) == levels[event]

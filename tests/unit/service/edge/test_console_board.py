"""The rows of the console, from a core that tests play."""

from types import SimpleNamespace
from unittest import mock

import pytest

from harness.routing import LADDERS
from shaperouter_service.edge.console import board
from shaperouter_service.edge.console.board import Board
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.telemetry.requests import RequestCounts


def test_nothing_is_kept_of_a_model_that_was_unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ServedModel(name="tiny", ladders=LADDERS)
    core = mock.MagicMock()
    core.models.revisions.return_value = [model]
    core.overview.counts.return_value = RequestCounts(
        prompt_tokens=0, generated_tokens=0, ended=0, waiting=0, running=0
    )
    now = [0.0]
    monkeypatch.setattr(board, "time", SimpleNamespace(monotonic=lambda: now[0]))
    watched = Board(core)
    for loaded in ([model], []):
        core.models.loaded.return_value = loaded
        now[0] += 10.0
        sections, _ = watched.look()
        assert list(sections["models"]) == [each.name for each in loaded]
        assert list(watched._lattices) == [each.name for each in loaded]

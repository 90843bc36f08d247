"""The limit on the memory maps of a process, which compiled code uses up."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from shaperouter_service.graphs.memory_maps import MemoryMaps, memory_maps


def test_the_memory_maps_of_this_process_are_counted() -> None:
    found = memory_maps()
    assert 100 < found.used < found.limit
    assert not found.spent


def test_a_process_that_cannot_count_its_maps_has_no_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(path: Path) -> str:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Path, "read_text", refuse)
    assert not memory_maps().spent


@pytest.mark.parametrize(("used", "spent"), [(799, False), (800, True)])
def test_maps_are_spent_before_the_limit_is_reached(used: int, spent: bool) -> None:
    assert MemoryMaps(used, 1000).spent is spent

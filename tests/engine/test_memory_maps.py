"""The limit on the memory maps of a process, which compiled code uses up."""

import pytest

from shaperouter_service.graphs.memory_maps import MemoryMaps, memory_maps


def test_the_memory_maps_of_this_process_are_counted() -> None:
    found = memory_maps()
    assert 100 < found.used < found.limit
    assert not found.spent


@pytest.mark.parametrize(("used", "spent"), [(799, False), (800, True)])
def test_maps_are_spent_before_the_limit_is_reached(used: int, spent: bool) -> None:
    assert MemoryMaps(used, 1000).spent is spent

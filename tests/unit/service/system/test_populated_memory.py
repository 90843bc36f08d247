"""Memory is populated before it is used, and what is not taken is given back."""

import mmap

import numpy as np
import pytest

from shaperouter_service.system import populated_memory
from shaperouter_service.system.populated_memory import PopulatedMemory

EXPECTED = 2**24


@pytest.fixture
def populated(monkeypatch: pytest.MonkeyPatch) -> PopulatedMemory:
    # Advice that every Linux takes; only Linux 5.14 can populate memory.
    monkeypatch.setattr(populated_memory, "_POPULATE_WRITE", mmap.MADV_NORMAL)
    memory = PopulatedMemory(EXPECTED)
    assert memory.populated == 0
    memory.populate()
    return memory


def test_what_is_expected_is_populated(populated: PopulatedMemory) -> None:
    assert populated.populated == EXPECTED


def test_populating_memory_that_is_in_use_leaves_its_content() -> None:
    memory = PopulatedMemory(EXPECTED)
    taken = memory.take(EXPECTED + 2**16)  # more than is populated
    assert taken is not None
    taken[:] = 7
    memory.populate()
    memory.free_rest()
    assert np.all(taken == 7)


def test_parts_do_not_overlap_and_end_with_the_memory() -> None:
    memory = PopulatedMemory(100)
    first, second = memory.take(60), memory.take(40)
    assert first is not None
    assert second is not None
    first[:], second[:] = 1, 2
    assert np.all(first == 1)
    assert memory.take(2**24) is None


def test_what_is_not_taken_is_given_back(populated: PopulatedMemory) -> None:
    taken = populated.take(mmap.PAGESIZE + 1)
    assert taken is not None
    taken[:] = 7
    populated.free_rest()
    populated.populate()
    assert populated.populated == len(taken)
    assert populated.take(1) is None
    assert np.all(taken == 7)


def test_a_system_that_cannot_populate_provides_memory_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(populated_memory, "_POPULATE_WRITE", 10**6)
    memory = PopulatedMemory(EXPECTED)
    memory.populate()
    assert memory.populated == 0
    taken = memory.take(EXPECTED)
    assert taken is not None
    taken[:] = 7
    assert np.all(taken == 7)

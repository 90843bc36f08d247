"""Memory is populated before it is used, and what is not taken is given back."""

import mmap
from pathlib import Path

import numpy as np

from shaperouter_service.system.populated_memory import PopulatedMemory

PAGE = mmap.PAGESIZE


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * PAGE


def test_populated_memory_is_resident_before_it_is_taken() -> None:
    before = resident_bytes()
    memory = PopulatedMemory(2**26)
    assert memory.populated == 0
    memory.populate()
    assert memory.populated == 2**26
    assert resident_bytes() - before > 2**25


def test_populating_memory_that_is_in_use_leaves_its_content() -> None:
    memory = PopulatedMemory(2**16)
    taken = memory.take(2**16)
    assert taken is not None
    taken[:] = 7
    memory.populate()
    assert np.all(taken == 7)


def test_parts_do_not_overlap_and_end_with_the_memory() -> None:
    memory = PopulatedMemory(100)
    first, second = memory.take(60), memory.take(40)
    assert first is not None
    assert second is not None
    first[:], second[:] = 1, 2
    assert np.all(first == 1)
    assert memory.take(1) is None


def test_what_is_not_taken_is_given_back_and_not_populated_any_more() -> None:
    memory = PopulatedMemory(2**26)
    memory.populate()
    before = resident_bytes()
    taken = memory.take(PAGE + 1)
    assert taken is not None
    taken[:] = 7
    memory.free_rest()
    memory.populate()
    assert memory.populated == 2 * PAGE
    assert before - resident_bytes() > 2**25
    assert memory.take(PAGE) is None
    assert np.all(taken == 7)

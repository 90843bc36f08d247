"""The memory of a worker's process."""

import resource

import pytest

from shaperouter_service.graphs.budget import memory_bytes


def test_memory_is_reported_without_a_free_file_descriptor() -> None:
    before = memory_bytes()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            open("/dev/null")  # noqa: PTH123, SIM115
        assert memory_bytes() == before > 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

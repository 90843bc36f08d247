"""What all tests share: how they are dealt to the processes that run them, and their patience."""

import pytest
from hypothesis import settings

# The machine may have more to do: an example takes as long as it takes.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Fixtures of a session that are dear: the tests that use one are run by one process.
SHARED = ("benches", "service")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Has tests that share a fixture, and else those of a file, run in one process."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        shared = next((name for name in SHARED if name in fixtures), None)
        item.add_marker(pytest.mark.xdist_group(shared or item.nodeid.partition("::")[0]))

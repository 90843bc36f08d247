"""What all tests share."""

from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

# The machine may be busy, so examples have no deadline.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Where tests run in several processes, those of a file share one, and so do those of these files:
# they share the engines of a session, whose graphs take minutes to compile.
TOGETHER = {f"tests/engine/test_{name}.py" for name in ("continuing", "goldens", "options")}


class ByWhatIsShared(LoadFileScheduling):
    """Gives each process files, and one of them all that share engines."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "engines" if file in TOGETHER else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByWhatIsShared:
    return ByWhatIsShared(config, log)

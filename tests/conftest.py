"""What all tests share."""

import gc
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

# The machine may be busy, so examples have no deadline, and may take long to draw.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# Where tests run in several processes, those of a file share one. So do those of these files, which
# share what takes long to start: engines, whose graphs take minutes to compile, or services.
TOGETHER = {
    f"tests/{name}.py": shared
    for shared, names in {
        "engines": ("engine/test_continuing", "engine/test_goldens", "engine/test_options"),
        "service": ("integration/test_failures", "integration/test_serving"),
        "demo": (
            "integration/test_demo_model",
            "integration/test_doors",
            "integration/test_readme",
            "integration/test_triton_client",
            "integration/test_typescript_client",
        ),
    }.items()
    for name in names
}


class ByWhatIsShared(LoadFileScheduling):
    """Gives each process files, and one of them all that share something."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return TOGETHER.get(file, file)


def pytest_collection_finish() -> None:
    """Keeps the garbage collector from visiting modules and tests, which stay until the end."""
    gc.collect()
    gc.freeze()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByWhatIsShared:
    return ByWhatIsShared(config, log)

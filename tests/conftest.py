"""What all tests share."""

import gc
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

# Modules and tests stay in memory until the end, so garbage is collected only once tests run.
gc.disable()

# The machine may be busy, so examples have no deadline, and may take long to draw.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# Where tests run in several processes, those of a file share one. So do those of these files, which
# share what takes long to start: engines, whose graphs take minutes to compile, or services. The
# files of "traffic" keep all cores busy with requests, so each would take longer beside another.
TOGETHER = {
    f"tests/{name}.py": shared
    for shared, names in {
        "engines": ("engine/test_continuing", "engine/test_goldens", "engine/test_options"),
        "service": ("integration/test_failures", "integration/test_serving"),
        "traffic": (
            "integration/test_changing_models",
            "integration/test_losses",
            "integration/test_recycling",
        ),
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


# These take longest, so they begin first: the processes then end at about the same time.
LONGEST = (
    "engines",
    "tests/engine/test_graphs.py",
    "tests/engine/test_compile_cache.py",
    "tests/engine/test_encoders.py",
    "tests/engine/test_families.py",
    "tests/engine/test_sampling.py",
    "tests/engine/test_prompt_logprobs.py",
    "tests/engine/test_kernel_products.py",
    "traffic",
    "service",
    "demo",
    "tests/integration/test_transcription.py",
    "tests/integration/test_console.py",
    "tests/unit/deploy/test_combinations.py",
    "tests/integration/test_openai_client.py",
    "tests/integration/test_functions.py",
    "tests/unit/deploy/test_release.py",
    "tests/integration/test_compile_cache.py",
    "tests/integration/test_saved_work.py",
)


class ByWhatIsShared(LoadFileScheduling):
    """Gives each process files, and one of them all that share something."""

    def _split_scope(self, nodeid: str) -> str:
        return group(super()._split_scope(nodeid))


def group(file: str) -> str:
    """What shares a process with a file's tests."""
    return TOGETHER.get(file, file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(group(item.nodeid.split("::")[0]), len(ranks)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Starts garbage collection, which never visits modules and tests."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByWhatIsShared:
    return ByWhatIsShared(config, log)

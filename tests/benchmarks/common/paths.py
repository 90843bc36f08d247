"""Paths of the repository, and the cores of the machine."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
DOCS = REPOSITORY / "docs"
WORK = REPOSITORY / "build" / "bench"
LOGS = WORK / "logs"
# Import benchmarks, harness, stubs and service from this checkout, whatever is installed.
PYTHON_PATH = os.pathsep.join(
    str(REPOSITORY / room) for room in ("tests/benchmarks", "tests", "client", "service")
)
THREADS = len(os.sched_getaffinity(0))


def environment_python(environment: str) -> Path:
    """The interpreter of an environment in a folder of the repository."""
    return REPOSITORY / environment / "bin" / "python"

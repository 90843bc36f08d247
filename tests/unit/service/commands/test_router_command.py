"""`shaperouterd router`."""

import subprocess
import sys

from harness.roles import Run, Started
from harness.waiting import TIMEOUT


def test_a_router_needs_a_worker(started: Started, run: Run) -> None:
    result = run("router")
    assert result.exit_code == 2
    assert "--worker" in result.output


def test_a_router_gets_the_addresses_of_its_workers(started: Started, run: Run) -> None:
    run("router", "--worker=unix:/a", "--worker=host:1", "--listen=unix:/r")
    assert started.workers == ("unix:/a", "host:1")
    assert started.config.listen == "unix:/r"
    assert not started.config.own_workers


def test_the_router_imports_nothing_that_only_workers_have() -> None:
    code = (
        "import sys, shaperouter_service.cli, shaperouter_service.roles.router\n"
        "print({'psutil', 'safetensors', 'tensorflow', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=TIMEOUT
    )
    assert done.stdout.strip() == "set()"

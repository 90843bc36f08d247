"""`shaperouterd` in this process, with roles that only record their arguments."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness.roles import Run, Started
from shaperouter_service.checkpoints.model_locations import ModelLocation
from shaperouter_service.commands.group import cli
from shaperouter_service.telemetry.logs import LogSettings


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    started = Started()
    # Tests of logging that ran before in this process may have set it up, in JSON perhaps.
    monkeypatch.setattr("shaperouter_service.telemetry.logs._settings", None)
    # The real one imports TensorFlow.
    worker: Any = ModuleType("shaperouter_service.roles.worker")
    worker.WorkerConfig = SimpleNamespace
    worker.run_worker = started.run
    monkeypatch.setitem(sys.modules, worker.__name__, worker)
    monkeypatch.setattr("shaperouter_service.roles.router.run_router", started.run)
    monkeypatch.setattr("shaperouter_service.roles.serve.run_serve", started.run)

    def configure_logs(settings: LogSettings) -> None:
        started.logs = settings.level, settings.format

    monkeypatch.setattr(
        "shaperouter_service.commands.options.common.configure_logs", configure_logs
    )
    monkeypatch.setattr(
        "shaperouter_service.commands.options.common.parse_models",
        lambda specs: [
            ModelLocation(name=spec, directory=Path("/models") / spec) for spec in specs
        ],
    )
    # Set by the worker's command for TensorFlow: put back afterwards.
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    monkeypatch.setenv("TF_XLA_FLAGS", "")
    monkeypatch.setenv("XLA_FLAGS", "")
    return started


@pytest.fixture
def run() -> Run:
    """Runs `shaperouterd` with arguments and variables."""

    def run(*arguments: str, **variables: str) -> Result:
        return CliRunner().invoke(cli, arguments, env=variables, catch_exceptions=False)

    return run


@pytest.fixture
def config_file(tmp_path: Path) -> Callable[[str], str]:
    """Writes a configuration file and returns the option that names it."""

    def write(text: str) -> str:
        file = tmp_path / "shaperouter.toml"
        file.write_text(text, encoding="utf-8")
        return f"--config={file}"

    return write

"""The contracts of imports (`[tool.importlinter]`): each refuses an import that breaks it."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SETTINGS = ROOT / "pyproject.toml"
CONTRACTS = tomllib.loads(SETTINGS.read_text())["tool"]["importlinter"]["contracts"]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the service's package, with its code only."""
    source = ROOT / "service" / "shaperouter_service"
    for path in source.rglob("*.py"):
        copy = tmp_path / source.name / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return tmp_path / source.name


def broken_contracts(package: Path) -> set[str]:
    """Names of the contracts that the package breaks."""
    result = subprocess.run(
        [
            Path(sys.executable).with_name("lint-imports"),
            f"--config={SETTINGS}",
            "--no-cache",
            "--no-logo",
        ],
        cwd=package.parent,
        env={**os.environ, "PYTHONPATH": str(package.parent), "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    lines = result.stdout.splitlines()
    broken = {
        contract["name"]
        for contract in CONTRACTS
        if any(line.startswith(f"{contract['name']} BROKEN") for line in lines)
    }
    assert bool(broken) == bool(result.returncode), result.stdout
    return broken


@pytest.mark.parametrize(
    ("module", "imported", "contract"),
    [
        pytest.param("routing/costs.py", "google.protobuf.message", "pure", id="protobuf"),
        pytest.param("serving/gate.py", "grpc", "serving", id="gRPC in serving"),
        pytest.param("worker/run.py", "shaperouter.v1.worker_pb2", "values", id="messages"),
        pytest.param("generation/limits.py", "shaperouter.v1.graph_pb2", "pure", id="stubs"),
        pytest.param("generation/limits.py", "grpc", "pure", id="gRPC"),
        pytest.param("edge/other/__init__.py", "shaperouter_service.edge.grpc", "doors", id="door"),
        pytest.param("speech/audio/pcm.py", "shaperouter_service.routing", "layers", id="upwards"),
        pytest.param("text/stopping.py", "shaperouter_service.auth", "layers", id="sideways"),
        pytest.param("new_room/__init__.py", "json", "layers", id="room that has no line"),
        pytest.param("worker/run.py", "shaperouter.v1.worker_pb2", "values", id="message"),
        pytest.param("fleet/link.py", "tensorflow", "tensorflow", id="TensorFlow"),
        pytest.param(
            "roles/router.py", "shaperouter_service.kernels", "tensorflow", id="TensorFlow's users"
        ),
    ],
)
def test_an_import_that_breaks_a_contract_is_found(
    package: Path, module: str, imported: str, contract: str
) -> None:
    path = package / module
    path.parent.mkdir(exist_ok=True)
    code = path.read_text() if path.exists() else ""
    path.write_text(f"{code}\nimport {imported}\n")
    (name,) = [each["name"] for each in CONTRACTS if each["id"] == contract]
    assert broken_contracts(package) == {name}


def test_contributing_shows_the_layers() -> None:
    (layers,) = [each["layers"] for each in CONTRACTS if each["id"] == "layers"]
    table = "\n".join(["```", *layers, "```"])
    assert table in (ROOT / "CONTRIBUTING.md").read_text()


def test_the_architecture_page_says_what_each_room_is_for() -> None:
    (layers,) = [each["layers"] for each in CONTRACTS if each["id"] == "layers"]
    rooms = {room for line in layers for room in line.split(" | ")}
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `(?:…|service/shaperouter_service)/(\w+)", page, flags=re.MULTILINE)
    assert set(rows) == rooms | {"builtin"}

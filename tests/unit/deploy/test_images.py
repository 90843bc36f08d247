"""The Dockerfiles are linted and pinned, and have the paths, user and ports of the manifests."""

from __future__ import annotations

import io
import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from dockerfile_parse import DockerfileParser

from harness.manifests import BUILDS, workloads
from harness.tools import tool
from images.contents import unlike_lock

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "deploy" / "docker"
ROLES = ["router", "worker"]
LOCKS = [ROOT / "service" / "router.lock", ROOT / "service" / "worker.lock", *DOCKER.glob("*.lock")]


def instructions(role: str) -> list[tuple[str, str]]:
    parser = DockerfileParser(fileobj=io.BytesIO((DOCKER / f"Dockerfile.{role}").read_bytes()))
    return [(step["instruction"], step["value"]) for step in parser.structure]


def last_stage(role: str) -> list[tuple[str, str]]:
    steps = instructions(role)
    return steps[max(i for i, (name, _) in enumerate(steps) if name == "FROM") :]


def value_of(role: str, instruction: str) -> str:
    [value] = [value for name, value in last_stage(role) if name == instruction]
    return value


def locked(path: Path) -> dict[str, str]:
    """Versions by package of a lock, every one of which has a hash."""
    entries = re.split(r"\n(?=\S)", path.read_text(encoding="utf-8").strip())
    versions = {}
    for entry in entries:
        name, version = entry.split()[0].split("==")
        assert "--hash=sha256:" in entry, f"{path.name}: {name} has no hash"
        versions[name] = version
    return versions


def test_the_linter_finds_nothing() -> None:
    hadolint = tool("hadolint")
    files = [str(DOCKER / f"Dockerfile.{role}") for role in ROLES]
    done = subprocess.run([hadolint, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_stages_have_one_base_which_is_pinned() -> None:
    steps = [step for role in ROLES for step in instructions(role)]
    bases = {value for name, value in steps if name == "ARG" and value.startswith("PYTHON=")}
    assert len(bases) == 1
    assert re.search(r"@sha256:[0-9a-f]{64}$", bases.pop())
    assert {value.split()[0] for name, value in steps if name == "FROM"} == {"${PYTHON}"}


@pytest.mark.parametrize("role", ROLES)
def test_packages_are_installed_by_their_hashes(role: str) -> None:
    runs = [value for name, value in instructions(role) if name == "RUN"]
    for run in runs:
        for part in run.split("&&"):
            if re.search(r"\bpip\b.*\binstall\b", part):
                assert "--require-hashes" in part or "--no-index" in part
                assert "--no-deps" in part


@pytest.mark.parametrize("role", ROLES)
def test_what_is_copied_is_there(role: str) -> None:
    steps = instructions(role)
    arguments = dict(value.split("=", 1) for name, value in steps if name == "ARG")
    for name, value in steps:
        if name == "COPY" and not value.startswith("--from"):
            source = value.split()[0]
            for argument, default in arguments.items():
                source = source.replace(f"${{{argument}}}", default)
            assert (ROOT / source).exists()


@pytest.mark.parametrize("role", ROLES)
def test_what_the_distributions_are_made_of_is_not_ignored(role: str) -> None:
    kept = (DOCKER / f"Dockerfile.{role}.dockerignore").read_text(encoding="utf-8").splitlines()
    for name in ("client", "service"):
        project = tomllib.loads((ROOT / name / "pyproject.toml").read_text(encoding="utf-8"))
        setuptools = project["tool"]["setuptools"]
        modules = [f"{module}.py" for module in setuptools.get("py-modules", [])]
        packages = setuptools["packages"]["find"]["include"]
        for each in [*modules, *(package.removesuffix("*") for package in packages)]:
            assert f"!{name}/{each}" in kept


def test_an_image_holds_what_its_lock_names_and_nothing_else() -> None:
    lock = "a-b==1.0 \\\n    --hash=sha256:0\nc==2.0 \\\n    --hash=sha256:1\n"
    ours = [("shaperouter", "0.1.0", ""), ("shaperouter-service", "0.1.0", "")]
    assert unlike_lock([("A_b", "1.0", ""), ("c", "2.0", ""), *ours], lock) == {}
    wrong = unlike_lock([("A.b", "1.1", ""), ("d", "1", "")], lock)
    assert wrong == {"a-b": "is 1.1, locked is 1.0", "c": "is missing", "d": "is not locked"}


@pytest.mark.parametrize("role", ROLES)
def test_the_program_lies_where_it_always_does(role: str) -> None:
    assert ("COPY", "--from=build /opt/shaperouter /opt/shaperouter") in last_stage(role)
    assert json.loads(value_of(role, "ENTRYPOINT")) == ["/opt/shaperouter/bin/shaperouterd"]
    scripts = tomllib.loads((ROOT / "service/pyproject.toml").read_text())["project"]["scripts"]
    assert "shaperouterd" in scripts


@pytest.mark.parametrize("build", BUILDS)
def test_manifests_run_it_as_its_user_on_its_ports(build: str) -> None:
    for workload in workloads(build):
        role = re.fullmatch(r"shaperouter/(router|worker)(-gpu)?:.*", workload.container["image"])
        assert role
        security = workload.pod["securityContext"]
        user = f"{security['runAsUser']}:{security['runAsGroup']}"
        assert value_of(role[1], "USER") == user
        exposed = {int(port) for port in value_of(role[1], "EXPOSE").split()}
        assert set(workload.ports.values()) <= exposed


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_package_has_a_hash(lock: Path) -> None:
    assert locked(lock)


def test_routers_have_no_tensorflow() -> None:
    packages = locked(ROOT / "service" / "router.lock")
    assert [name for name in packages if name.startswith(("tensorflow", "keras", "nvidia"))] == []


def test_workers_on_gpus_differ_in_tensorflow_alone() -> None:
    cpu, gpu = locked(ROOT / "service" / "worker.lock"), locked(DOCKER / "worker-gpu.lock")
    assert {name for name in cpu if name not in gpu} == {"tensorflow-cpu"}
    assert cpu["tensorflow-cpu"] == gpu["tensorflow"]
    assert all(gpu[name] == version for name, version in cpu.items() if name in gpu)
    added = {name for name in gpu if name not in cpu} - {"tensorflow"}
    assert all(name.startswith("nvidia-") for name in added)


def test_what_a_worker_on_a_gpu_asks_for_is_what_a_worker_asks_for() -> None:
    project = tomllib.loads((ROOT / "service" / "pyproject.toml").read_text())["project"]
    extra = {each.split(";")[0] for each in project["optional-dependencies"]["worker"]}
    lines = (DOCKER / "worker-gpu.in").read_text(encoding="utf-8").splitlines()
    asked = {line.replace("[and-cuda]", "") for line in lines if not line.startswith("#")}
    assert asked == {each for each in extra if not each.startswith("tensorflow-cpu")}

"""The compose file matches the program and the files that it names."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from opentelemetry.sdk.trace import TracerProvider

from harness.roles import options_of
from harness.tools import tool
from shaperouter_service import __version__
from shaperouter_service.commands.group import cli
from shaperouter_service.rpc.addresses import split_address
from shaperouter_service.telemetry.tracing import Span

DEPLOY = Path(__file__).parents[3] / "deploy"
FILE = DEPLOY / "compose" / "compose.yaml"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]
OURS = SERVICES["shaperouter"]

# Seconds that a process needs to stop once its requests have ended.
LAST_WORDS = 10


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The values of the command's options, as the program reads them."""
    for name, value in OURS["environment"].items():
        # ${NAME:-default}
        monkeypatch.setenv(name, value.rpartition(":-")[2].removesuffix("}"))
    command, *arguments = OURS["command"]
    return options_of(command, arguments)


def mounts(service: dict[str, Any]) -> dict[str, str]:
    """What of this machine lies where in a container, besides volumes and what users choose."""
    pairs = (volume.split(":")[:2] for volume in service["volumes"] if volume.startswith("."))
    return {target: source for source, target in pairs}


def test_it_is_a_compose_file() -> None:
    schema = ["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    done = subprocess.run([sys.executable, *schema], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_variable_is_of_an_option() -> None:
    known = {
        str(option.envvar)
        for option in cli.commands["serve"].params
        if isinstance(option, click.Option)
    }
    ours = {name for name in OURS["environment"] if not name.startswith("OTEL_")}
    assert ours <= known


def test_the_ports_are_those_of_the_program(options: dict[str, Any]) -> None:
    found = [int(port.rpartition(":")[2]) for port in OURS["ports"]]
    listening = [options["listen"], options["http_listen"]]
    assert found == [split_address(address, option="listen")[1] for address in listening]


def test_all_ports_are_of_this_machine_alone() -> None:
    ports = [port for service in SERVICES.values() for port in service["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_what_runs_has_time_to_finish(options: dict[str, Any]) -> None:
    stop = int(OURS["stop_grace_period"].removesuffix("s"))
    assert stop >= options["grace"] + LAST_WORDS


def test_the_cache_lies_on_a_volume(options: dict[str, Any]) -> None:
    targets = [volume.split(":")[1] for volume in OURS["volumes"]]
    assert str(Path(options["compile_cache"]).parent) in targets


def test_prometheus_asks_the_service(options: dict[str, Any], tmp_path: Path) -> None:
    prometheus = mounts(SERVICES["prometheus"])
    for target, source in prometheus.items():
        shutil.copy(FILE.parent / source, tmp_path / Path(target).name)
    command = [tool("promtool"), "check", "config", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    config = yaml.safe_load((tmp_path / "prometheus.yml").read_text(encoding="utf-8"))
    [job] = config["scrape_configs"]
    _, port = split_address(options["metrics_listen"], option="metrics-listen")
    assert job["job_name"] == "shaperouter"
    assert job["static_configs"] == [{"targets": [f"shaperouter:{port}"]}]


def test_grafana_finds_dashboard_and_prometheus() -> None:
    mounted = mounts(SERVICES["grafana"])
    provisioning = FILE.parent / mounted["/etc/grafana/provisioning"]
    [provider] = yaml.safe_load((provisioning / "dashboards/shaperouter.yaml").read_text())[
        "providers"
    ]
    dashboards = FILE.parent / mounted[provider["options"]["path"]]
    assert [file.name for file in dashboards.iterdir()] == ["shaperouter.json"]
    [source] = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text())[
        "datasources"
    ]
    assert source["type"] == "prometheus"
    assert source["url"] == "http://prometheus:9090"


def test_an_exemplar_leads_to_its_trace() -> None:
    assert "--enable-feature=exemplar-storage" in SERVICES["prometheus"]["command"]
    provisioning = FILE.parent / mounts(SERVICES["grafana"])["/etc/grafana/provisioning"]
    [source] = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text())[
        "datasources"
    ]
    [destination] = source["jsonData"]["exemplarTraceIdDestinations"]
    recorded = TracerProvider().get_tracer(__name__).start_span("request")
    assert destination["name"] in (Span(recorded).exemplar or {})
    variable, _, value = destination["url"].partition("/")
    assert variable.removeprefix("$") in SERVICES["grafana"]["environment"]
    assert value == "$${__value.raw}"


@pytest.mark.parametrize("name", SERVICES)
def test_it_runs_with_as_little_as_it_can(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_images_are_of_this_version_or_pinned() -> None:
    for name, service in SERVICES.items():
        if name == "shaperouter":
            assert service["image"] == f"shaperouter/worker:{__version__}"
        else:
            assert "@sha256:" in service["image"]

"""What KServe runs: its objects are valid, and the program takes their arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.roles import options_of
from harness.schemas import check
from shaperouter._endpoint import DEFAULT_TIMEOUT
from shaperouter_service.rpc.server import CONNECTION_AGE

KSERVE = Path(__file__).parents[3] / "deploy" / "kserve"
SERVICES = sorted(path for path in KSERVE.glob("*.yaml") if path.stem != "runtime")

# Seconds that the processes need to end after their last request.
LAST_WORDS = 10


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.fixture
def runtime() -> Any:
    return read(KSERVE / "runtime.yaml")


@pytest.fixture
def container(runtime: Any) -> Any:
    [container] = runtime["spec"]["containers"]
    return container


@pytest.fixture
def options(container: Any, tmp_path: Path) -> dict[str, Any]:
    """The values of the program's options, for a model in a directory of this machine."""
    (tmp_path / "config.json").write_text("{}")
    role, *arguments = [
        argument.replace("{{.Name}}", "gpt2").replace("/mnt/models", str(tmp_path))
        for argument in container["args"]
    ]
    return options_of(role, arguments)


@pytest.mark.parametrize("path", sorted(KSERVE.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_object_is_valid(path: Path) -> None:
    check(read(path))


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.stem)
def test_every_service_uses_the_runtime_with_what_it_supports(path: Path, runtime: Any) -> None:
    model = read(path)["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    formats = [each["name"] for each in runtime["spec"]["supportedModelFormats"]]
    assert model["modelFormat"]["name"] in formats


def test_the_program_takes_its_arguments_and_listens_on_its_ports(
    container: Any, options: dict[str, Any]
) -> None:
    [port] = container["ports"]
    assert options["listen"] == f"0.0.0.0:{port['containerPort']}"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert options["health_listen"] == f"0.0.0.0:{container[probe]['grpc']['port']}"


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.stem)
def test_a_pod_has_time_to_finish_what_runs(
    path: Path, container: Any, options: dict[str, Any]
) -> None:
    sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    period = read(path)["spec"]["predictor"]["terminationGracePeriodSeconds"]
    assert period >= sleep + options["grace"] + LAST_WORDS


def test_callers_have_left_a_pod_before_it_stops(container: Any) -> None:
    """gRPC varies the age of connections by a tenth."""
    assert container["lifecycle"]["preStop"]["sleep"]["seconds"] >= 1.1 * CONNECTION_AGE


def test_running_requests_may_take_as_long_as_clients_wait(options: dict[str, Any]) -> None:
    assert options["grace"] >= DEFAULT_TIMEOUT


def test_metrics_are_scraped_where_they_are(runtime: Any, container: Any) -> None:
    annotations = runtime["spec"]["annotations"]
    assert (
        f"--metrics-listen=0.0.0.0:{annotations['prometheus.kserve.io/port']}"
        in (container["args"])
    )


def test_every_mount_has_a_volume(runtime: Any, container: Any) -> None:
    volumes = {each["name"] for each in runtime["spec"]["volumes"]}
    assert {each["name"] for each in container["volumeMounts"]} == volumes

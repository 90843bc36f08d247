"""Variables that look like options but are none are reported, except those of other programs."""

import re
from typing import Any

import pytest
from click.testing import CliRunner

from harness.logs import capture_logs
from harness.roles import NEEDED, Run, Started
from shaperouter._cli._main import cli as client
from shaperouter_service.commands.options.variables import CLIENT_VARIABLES


def ignored(run: Run, role: str, **variables: str) -> list[tuple[str, Any]]:
    """The variables that a role says it ignores, and what it says was meant."""
    with capture_logs() as lines:
        assert run(role, *NEEDED[role], **variables).exit_code == 0
    return [
        (line["variable"], line.get("did_you_mean"))
        for line in lines
        if line["event"] == "unknown environment variable ignored"
    ]


@pytest.mark.usefixtures("started")
@pytest.mark.parametrize("role", NEEDED)
def test_an_unknown_variable_is_logged_with_the_nearest_name(run: Run, role: str) -> None:
    assert ignored(run, role, SHAPEROUTER_SLOT="4", SHAPEROUTER_XYZ="1") == [
        ("SHAPEROUTER_SLOT", "SHAPEROUTER_SLOTS"),
        ("SHAPEROUTER_XYZ", None),
    ]


def test_a_variable_of_another_role_or_of_the_client_is_known(started: Started, run: Run) -> None:
    assert ignored(run, "router", SHAPEROUTER_SLOTS="4", SHAPEROUTER_TOKEN="secret") == []


def test_every_variable_of_the_client_is_known() -> None:
    help_of_a_command = CliRunner().invoke(client, ["generate", "--help"]).output
    assert set(re.findall(r"SHAPEROUTER_\w+", help_of_a_command)) == CLIENT_VARIABLES


@pytest.mark.usefixtures("started")
@pytest.mark.parametrize(
    "name",
    [
        "SHAPEROUTER_SERVICE_HOST",
        "SHAPEROUTER_SERVICE_PORT",
        "SHAPEROUTER_SERVICE_PORT_GRPC",
        "SHAPEROUTER_PORT",
        "SHAPEROUTER_PORT_50051_TCP",
        "SHAPEROUTER_PORT_50051_TCP_ADDR",
        "SHAPEROUTER_PORT_50051_TCP_PORT",
        "SHAPEROUTER_WORKER_PORT_50052_TCP_PROTO",
        "SHAPEROUTER_WORKER_SERVICE_HOST",
    ],
)
def test_variables_of_kubernetes_services_are_ignored(run: Run, name: str) -> None:
    assert ignored(run, "serve", **{name: "tcp://10.0.0.1:50051"}) == []


@pytest.mark.usefixtures("started")
def test_a_port_variable_that_is_not_of_kubernetes_is_logged(run: Run) -> None:
    assert ignored(run, "serve", SHAPEROUTER_PORT="50051")

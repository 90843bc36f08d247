"""Manifests use only options that the program has, and refer only to objects that exist."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client import CollectorRegistry

from harness.manifests import BUILDS, KUBERNETES, OVERLAYS, Workload, built, of_kind, workloads
from harness.roles import options_of
from harness.waiting import TIMEOUT
from shaperouter._endpoint import DEFAULT_TIMEOUT
from shaperouter_service import __version__
from shaperouter_service.commands.group import cli
from shaperouter_service.rpc.addresses import split_address
from shaperouter_service.rpc.health import Health, serving_health
from shaperouter_service.rpc.server import CONNECTION_AGE
from shaperouter_service.telemetry.requests import RequestMetrics

PROMETHEUS = KUBERNETES.parent / "prometheus"

# A combined pod is a worker with a router.
ROLES = dict.fromkeys(BUILDS, ("router", "worker")) | {"gateway": ("worker",)}
ALL = [(name, f"shaperouter-{role}") for name in BUILDS for role in ROLES[name]]

# Seconds that a process needs to stop once its requests have ended.
LAST_WORDS = 10

# Seconds until all callers know that a pod is stopping.
ROUTES_CHANGE = 5


def workload_of(name: str, workload: str) -> Workload:
    return next(each for each in workloads(name) if each.name == workload)


@pytest.fixture(params=ALL, ids="-".join)
def workload(request: pytest.FixtureRequest) -> Workload:
    return workload_of(*request.param)


@pytest.fixture
def options(workload: Workload) -> dict[str, Any]:
    """The values of the command's options, as the program reads them from the manifest."""
    return workload.options


@pytest.mark.parametrize("name", BUILDS)
def test_all_workloads_are_tested(name: str) -> None:
    found = [(name, workload.name) for workload in workloads(name)]
    assert sorted(found) == [each for each in ALL if each[0] == name]


# The options of the program.


def test_the_program_takes_its_arguments_and_variables(options: dict[str, Any]) -> None:
    assert options


def test_every_variable_is_of_an_option(workload: Workload) -> None:
    options = cli.commands[workload.command].params
    known = {str(option.envvar) for option in options if isinstance(option, click.Option)}
    ours = {name for name in workload.environment if name.startswith("SHAPEROUTER_")}
    assert ours <= known


def test_no_variable_comes_from_a_service(workload: Workload) -> None:
    # A Service called shaperouter would set SHAPEROUTER_PORT, and perhaps a future option's
    # variable.
    assert workload.pod["enableServiceLinks"] is False


def test_ports_are_those_that_it_listens_on(workload: Workload, options: dict[str, Any]) -> None:
    listening = {
        "grpc": options["listen"],
        # Workers have no such port.
        **({"http": options["http_listen"]} if "http_listen" in options else {}),
        "metrics": options["metrics_listen"],
        "health": options["health_listen"],
    }
    ports = {name: split_address(address, option=name) for name, address in listening.items()}
    assert workload.ports == {name: port for name, (_, port) in ports.items()}
    assert {host for host, _ in ports.values()} == {"0.0.0.0"}


def test_what_it_writes_lies_on_a_volume(workload: Workload, options: dict[str, Any]) -> None:
    if "compile_cache" in options:
        cache = Path(options["compile_cache"])
        # Below the volume's root, which the group can write to.
        assert cache.parent in workload.writable
    assert Path("/tmp") in workload.writable


def test_its_threads_are_its_cores(workload: Workload, options: dict[str, Any]) -> None:
    if "threads" in options:
        assert options["threads"] == int(workload.container["resources"]["requests"]["cpu"])


# Starting and stopping.


def test_probes_ask_the_health_port(workload: Workload) -> None:
    assert {"startupProbe", "livenessProbe", "readinessProbe"} == set(workload.probes)
    for probe in workload.probes.values():
        assert probe["grpc"]["port"] == workload.ports["health"]


def test_a_compilation_never_ends_a_pod(workload: Workload) -> None:
    assert workload.probes["livenessProbe"]["grpc"]["service"] == "liveness"


def test_probes_ask_for_services_that_health_knows(tmp_path: Path) -> None:
    asked = {
        probe["grpc"]["service"]
        for name, workload in ALL
        for probe in workload_of(name, workload).probes.values()
    }
    address = f"unix:{tmp_path / 'health'}"

    async def check() -> None:
        async with serving_health(Health(), address), aio.insecure_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for service in asked:
                await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT)
            with pytest.raises(aio.AioRpcError):
                await stub.Check(health_pb2.HealthCheckRequest(service="none"), timeout=TIMEOUT)

    asyncio.run(check())


def test_a_pod_has_time_to_finish_what_runs(workload: Workload, options: dict[str, Any]) -> None:
    needed = workload.sleep + options["grace"] + LAST_WORDS
    assert workload.pod["terminationGracePeriodSeconds"] >= needed


@pytest.mark.parametrize("name", BUILDS)
def test_callers_have_left_a_router_before_it_stops(name: str) -> None:
    for workload in workloads(name):
        if workload.command == "router":
            # gRPC adds up to a tenth to the age at which a connection is renewed.
            assert workload.sleep >= 1.1 * CONNECTION_AGE + ROUTES_CHANGE


def test_running_requests_may_take_as_long_as_clients_wait(options: dict[str, Any]) -> None:
    registry = CollectorRegistry()
    metrics = RequestMetrics(registry, ["demo"])
    metrics.e2e_latency.labels("demo").observe(0)
    [family] = metrics.e2e_latency.collect()
    bounds = [float(s.labels["le"]) for s in family.samples if s.name.endswith("_bucket")]
    longest_measured = sorted(bounds)[-2]  # before infinity
    assert options["grace"] >= max(DEFAULT_TIMEOUT, longest_measured)


# How safely it runs.


def test_it_runs_with_as_little_as_it_can(workload: Workload) -> None:
    pod, container = workload.pod["securityContext"], workload.container["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert pod["runAsUser"] > 0
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert workload.pod["automountServiceAccountToken"] is False


def test_it_has_requests_and_a_limit_of_memory(workload: Workload) -> None:
    resources = workload.container["resources"]
    assert {"cpu", "memory"} <= set(resources["requests"])
    assert "memory" in resources["limits"]


def test_its_image_is_of_this_version(workload: Workload) -> None:
    assert workload.container["image"].rpartition(":")[2] == __version__


# What operators address, and what happens to pods.


@pytest.mark.parametrize("name", BUILDS)
def test_a_component_label_selects_workloads_and_their_pods(name: str) -> None:
    for manifest in of_kind(built(name), "Deployment", "StatefulSet"):
        label = "app.kubernetes.io/component"
        pods = manifest["spec"]["template"]["metadata"]["labels"]
        assert manifest["metadata"]["labels"][label] == pods[label]


@pytest.mark.parametrize("name", BUILDS)
def test_a_pod_that_is_not_ready_holds_up_no_drain(name: str) -> None:
    for budget in of_kind(built(name), "PodDisruptionBudget"):
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


@pytest.mark.parametrize("name", [each for each in BUILDS if each != "gateway"])
def test_a_rollout_of_routers_waits_as_long_as_workers_may_start(name: str) -> None:
    # Routers are ready only with workers, and a rollout past its deadline counts as failed.
    probe = workload_of(name, "shaperouter-worker").probes["startupProbe"]
    routers = workload_of(name, "shaperouter-router").spec
    assert routers["progressDeadlineSeconds"] > probe["periodSeconds"] * probe["failureThreshold"]


@pytest.mark.parametrize("name", [each for each in BUILDS if each != "gateway"])
def test_recordings_take_half_of_a_routers_memory_and_tensors_a_quarter(name: str) -> None:
    router = workload_of(name, "shaperouter-router")
    assert router.container["resources"]["limits"]["memory"] == "1Gi"
    assert router.options["max_recording_memory"] == 2**29
    assert router.options["max_tensor_memory"] == 2**28


# What manifests name of each other.


def pods_of(name: str, selector: dict[str, str]) -> list[Workload]:
    return [each for each in workloads(name) if selector.items() <= each.labels.items()]


@pytest.mark.parametrize("name", BUILDS)
def test_routers_find_workers_by_their_service(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    services = {each["metadata"]["name"]: each["spec"] for each in of_kind(built(name), "Service")}
    for workload in workloads(name):
        if workload.command != "router":
            continue
        for address in options_of("router", workload.arguments)["workers"]:
            host, port = split_address(address, option="worker")
            assert services[host]["clusterIP"] == "None"
            assert port in [each["port"] for each in services[host]["ports"]]
            [workers] = pods_of(name, services[host]["selector"])
            assert workers.ports["grpc"] == port


@pytest.mark.parametrize("name", BUILDS)
def test_services_lead_to_ports_of_pods(name: str) -> None:
    for service in of_kind(built(name), "Service"):
        [workload] = pods_of(name, service["spec"]["selector"])
        for port in service["spec"]["ports"]:
            # Without an address of its own, a service maps nothing.
            assert port["port"] == workload.ports[port["targetPort"]]


@pytest.mark.parametrize("name", BUILDS)
def test_budgets_and_policies_are_of_pods(name: str) -> None:
    for budget in of_kind(built(name), "PodDisruptionBudget"):
        assert len(pods_of(name, budget["spec"]["selector"]["matchLabels"])) == 1
    for policy in of_kind(built(name), "NetworkPolicy"):
        pods = pods_of(name, policy["spec"]["podSelector"]["matchLabels"])
        assert pods
        for rule in policy["spec"].get("ingress", []):
            for port in rule["ports"]:
                # A number: not every network resolves the names of ports.
                assert all(port["port"] in pod.ports.values() for pod in pods)


@pytest.mark.parametrize("name", BUILDS)
def test_whoever_opens_connections_reaches_dns_wherever_it_is(name: str) -> None:
    for policy in of_kind(built(name), "NetworkPolicy"):
        rules = policy["spec"].get("egress", [])
        places = [
            rule.get("to")
            for rule in rules
            for port in rule["ports"]
            if (port["port"], port.get("protocol")) in {(53, "UDP"), (53, "TCP"), (5353, "UDP")}
        ]
        # Namespaces of any name, and addresses of nodes: NodeLocal DNSCache is in no namespace.
        assert places == ([None] * 3 if rules else [])


@pytest.mark.parametrize("name", BUILDS)
def test_what_scales_is_there_and_targets_less_than_its_slots(name: str) -> None:
    scalers = of_kind(built(name), "HorizontalPodAutoscaler", "ScaledObject")
    [scaler] = scalers
    target = scaler["spec"]["scaleTargetRef"]
    [workload] = [each for each in workloads(name) if each.name == target["name"]]
    if scaler["kind"] == "ScaledObject":
        wanted = scaler["spec"]["triggers"][0]["metadata"]["threshold"]
        # Without Prometheus a loaded fleet stays as it is.
        fallback = scaler["spec"]["fallback"]
        assert (fallback["replicas"], fallback["behavior"]) == (2, "currentReplicasIfHigher")
    else:
        wanted = scaler["spec"]["metrics"][0]["object"]["target"]["averageValue"]
    assert 0 < int(wanted) < int(workload.environment["SHAPEROUTER_SLOTS"])
    # An apply must not reset what an autoscaler has set.
    assert "replicas" not in workload.spec


@pytest.mark.parametrize("name", BUILDS)
def test_an_autoscaler_needs_no_api_that_is_kedas(name: str) -> None:
    for scaler in of_kind(built(name), "HorizontalPodAutoscaler"):
        [metric] = scaler["spec"]["metrics"]
        # External metrics have one provider in a cluster, which KEDA is where it is installed.
        assert metric["type"] == "Object"
        described = metric["object"]["describedObject"]
        services = {each["metadata"]["name"] for each in of_kind(built(name), "Service")}
        assert (described["kind"], described["name"] in services) == ("Service", True)
        adapter = yaml.safe_load((PROMETHEUS / "adapter.yaml").read_text(encoding="utf-8"))
        [rule] = adapter["rules"]["custom"]
        assert rule["name"]["as"] == metric["object"]["metric"]["name"]
        # The recorded series leads to the object by its labels.
        groups = yaml.safe_load((PROMETHEUS / "rules.yml").read_text(encoding="utf-8"))["groups"]
        recorded = [each for group in groups for each in group["rules"]]
        [demand] = [each for each in recorded if each.get("record", "none") in rule["seriesQuery"]]
        assert demand["labels"] == {"service": described["name"]}
        assert set(rule["resources"]["overrides"]) == {"namespace", "service"}


@pytest.mark.parametrize("name", BUILDS)
def test_volumes_are_there(name: str) -> None:
    claims = {each["metadata"]["name"] for each in of_kind(built(name), "PersistentVolumeClaim")}
    for workload in workloads(name):
        templates = workload.spec.get("volumeClaimTemplates", [])
        volumes = {volume["name"] for volume in workload.pod["volumes"]}
        volumes |= {template["metadata"]["name"] for template in templates}
        assert {mount["name"] for mount in workload.container["volumeMounts"]} == volumes
        for volume in workload.pod["volumes"]:
            if claim := volume.get("persistentVolumeClaim"):
                assert claim["claimName"] in claims


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_overlay_says_when_to_choose_it_and_what_it_costs(name: str) -> None:
    page = (KUBERNETES / "components" / name / "README.md").read_text(encoding="utf-8")
    assert "\n## When\n" in page
    assert "\n## What it costs\n" in page

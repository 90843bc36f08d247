"""deploy/kubernetes/README.md: how callers outside the cluster reach routers."""

from __future__ import annotations

import re
from typing import Any

import yaml

from harness.manifests import KUBERNETES, built, of_kind, workloads
from harness.schemas import check

PAGE = (KUBERNETES / "README.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## Callers outside the cluster\n")[1].split("\n## ")[0]
[EXAMPLE] = re.findall(r"```yaml\n(.*?)```", SECTION, flags=re.S)
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all(EXAMPLE))
ROUTES = of_kind(OBJECTS, "GRPCRoute", "HTTPRoute")


def test_every_object_is_valid() -> None:
    for manifest in OBJECTS:
        check(manifest)


def test_routes_lead_from_the_gateway_to_ports_of_the_service() -> None:
    [gateway] = of_kind(OBJECTS, "Gateway")
    [service] = [
        each
        for each in of_kind(built("base"), "Service")
        if each["metadata"]["name"] == "shaperouter"
    ]
    ports = {each["name"]: each["port"] for each in service["spec"]["ports"]}
    expected = {"GRPCRoute": ports["grpc"], "HTTPRoute": ports["http"]}
    for route in ROUTES:
        assert route["spec"]["parentRefs"] == [{"name": gateway["metadata"]["name"]}]
        [rule] = route["spec"]["rules"]
        assert rule["backendRefs"] == [{"name": "shaperouter", "port": expected[route["kind"]]}]
        assert route["metadata"]["namespace"] == service["metadata"]["namespace"]


def test_routes_of_different_kinds_share_no_name() -> None:
    # The Gateway API has implementations refuse one of them on the same listener.
    names = [name for route in ROUTES for name in route["spec"]["hostnames"]]
    assert len(names) == len(set(names)) == len(ROUTES)


def test_the_gateway_waits_as_long_as_requests_may_wait_and_run() -> None:
    [policy] = of_kind(OBJECTS, "BackendTrafficPolicy")
    targets = {(each["kind"], each["name"]) for each in policy["spec"]["targetRefs"]}
    assert targets == {(each["kind"], each["metadata"]["name"]) for each in ROUTES}
    [router] = [each for each in workloads("base") if each.command == "router"]
    longest = router.options["max_queue_seconds"] + router.options["grace"]
    assert policy["spec"]["timeout"]["http"]["requestTimeout"] == f"{longest:.0f}s"


def test_the_namespace_of_the_gateway_gets_the_label_of_callers() -> None:
    [policy] = [
        each
        for each in of_kind(built("base"), "NetworkPolicy")
        if each["metadata"]["name"] == "shaperouter-router"
    ]
    callers = policy["spec"]["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"]
    [(label, value)] = callers.items()
    assert re.search(rf"kubectl label namespace \S+ {label}={value}\n", SECTION)

"""Combinations of components: each works as promised, or the build fails."""

from __future__ import annotations

import functools
import itertools
import json
import shutil
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.manifests import (
    BASES,
    COMPONENTS,
    KUBERNETES,
    BuildError,
    Manifest,
    Workload,
    combined,
    of_kind,
    workloads_of,
)
from harness.promql import series_of
from harness.schemas import check

PAIRS = list(itertools.combinations(COMPONENTS, 2))


# What the page says.


def table() -> Mapping[frozenset[str], bool]:
    """Whether two combine, as deploy/kubernetes/README.md says."""
    page = (KUBERNETES / "README.md").read_text(encoding="utf-8")
    section = page.split("## What combines with what")[1]
    lines = list(itertools.takewhile(lambda line: line, section.split("\n\n| | ")[1].split("\n")))
    columns = [cell.strip() for cell in lines[0].strip("|").split("|")]
    assert columns == [*BASES, *(line.split("|")[1].strip() for line in lines[2:])]
    found: dict[frozenset[str], bool] = {}
    for line in lines[2:]:
        row, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        for column, cell in zip(columns, cells, strict=True):
            if row == column:
                assert cell == ""
                continue
            combines = {"yes": True, "**no**": False}[cell]
            # Each pair of components is in it twice.
            assert found.setdefault(frozenset({row, column}), combines) == combines
    return found


TABLE = table()


def combine(*parts: str) -> bool:
    """Whether each pair of them combines."""
    return all(TABLE[frozenset(pair)] for pair in itertools.combinations(parts, 2))


def largest_sets() -> list[tuple[str, ...]]:
    """For each base, the sets of components that combine and to which none can be added."""
    found = []
    for base in BASES:
        sets = [
            {*chosen}
            for count in range(len(COMPONENTS), 0, -1)
            for chosen in itertools.combinations(COMPONENTS, count)
            if combine(base, *chosen)
        ]
        largest = [each for each in sets if not any(each < other for other in sets)]
        found += [(base, *sorted(each)) for each in largest]
    return found


# What each component promises.


def serving(manifests: Sequence[Manifest]) -> list[Workload]:
    """The workload that receives callers' requests."""
    found = [each for each in workloads_of(manifests) if each.command in ("router", "serve")]
    assert found
    return found


def computing(manifests: Sequence[Manifest]) -> list[Workload]:
    """Whoever has a device."""
    found = [each for each in workloads_of(manifests) if each.command in ("worker", "serve")]
    assert found
    return found


def lies_in_a_secret(workload: Workload, path: Path | None) -> bool:
    return path is not None and "secret" in workload.volume_at(path)


def has_tokens(manifests: Sequence[Manifest]) -> bool:
    return all(lies_in_a_secret(each, each.options["tokens"]) for each in serving(manifests))


def has_tls(manifests: Sequence[Manifest]) -> bool:
    """Callers are shown a certificate."""
    return not speak_plainly(manifests, serving(manifests)) and all(
        lies_in_a_secret(each, each.options[option])
        for each in serving(manifests)
        for option in ("tls_cert", "tls_key")
    )


def has_mutual_tls(manifests: Sequence[Manifest]) -> bool:
    """Workers take calls of routers alone, and routers call workers alone."""
    if speak_plainly(manifests, computing(manifests)):
        return False
    names = ("tls_cert", "tls_key", "tls_client_ca")
    asked = [
        lies_in_a_secret(each, each.options[name])
        for each in computing(manifests)
        for name in names
    ]
    shown = [
        lies_in_a_secret(each, each.options[f"worker_tls_{part}"])
        for each in serving(manifests)
        for part in ("ca", "cert", "key")
    ]
    return all(asked) and all(shown)


def has_certificates(manifests: Sequence[Manifest]) -> bool:
    """Both roles have certificates of their own authority, which are renewed."""
    certificates = of_kind(manifests, "Certificate")
    if not certificates:
        return False
    [authority] = [each["spec"] for each in certificates if each["spec"].get("isCA")]
    [issuer] = [
        each["metadata"]["name"]
        for each in of_kind(manifests, "Issuer")
        if each["spec"].get("ca") == {"secretName": authority["secretName"]}
    ]
    issued = {
        each["spec"]["secretName"]: each["spec"]
        for each in certificates
        if each["spec"]["issuerRef"]["name"] == issuer
    }
    [router], [worker] = serving(manifests), computing(manifests)
    shown = {
        "client auth": router.volume_at(router.options["worker_tls_cert"]),
        "server auth": worker.volume_at(worker.options["tls_cert"]),
    }
    certificate_of_worker = issued[shown["server auth"]["secret"]["secretName"]]
    assert router.options["worker_tls_name"] in certificate_of_worker["dnsNames"]
    return all(
        use in issued[volume["secret"]["secretName"]]["usages"] for use, volume in shown.items()
    )


def speak_plainly(manifests: Sequence[Manifest], workloads: Sequence[Workload]) -> bool:
    """Whether a Service says that gRPC is in plain text on pods of these workloads."""
    return any(
        "appProtocol" in port
        for service in of_kind(manifests, "Service")
        for port in service["spec"]["ports"]
        if port["name"] == "grpc"
        for workload in workloads
        if service["spec"]["selector"].items() <= workload.labels.items()
    )


def scaler_of(manifests: Sequence[Manifest]) -> Manifest | None:
    """The ScaledObject, if it alone scales, and by what the routers count."""
    scalers = of_kind(manifests, "ScaledObject")
    if not scalers or of_kind(manifests, "HorizontalPodAutoscaler"):
        return None
    [scaler] = scalers
    [trigger] = scaler["spec"]["triggers"]
    # The rule's own test has a request wait where there is no worker: rules/alerts.yml.
    assert series_of(trigger["metadata"]["query"]) == {"shaperouter:demand"}
    # A missing rule is an error and not "no demand".
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    return scaler


def scales_by_keda(manifests: Sequence[Manifest]) -> bool:
    """While a worker drains another one stays, and routers without workers get no requests."""
    scaler = scaler_of(manifests)
    if scaler is None or scaler["spec"]["minReplicaCount"] < 2:
        return False
    return all(
        each.options.get("ready_when", "workers") == "workers" for each in serving(manifests)
    )


def wakes_from_zero(manifests: Sequence[Manifest]) -> bool:
    """Waiting requests are counted in pods that stay up and accept requests without workers."""
    scaler = scaler_of(manifests)
    if scaler is None:
        return False
    scaled = scaler["spec"]["scaleTargetRef"]["name"]
    sleeping = {"record": "shaperouter:scales_to_zero", "expr": "vector(1)"}
    return (
        scaler["spec"]["minReplicaCount"] == 0
        # Alerts know that workers may sleep here.
        and sleeping | {"labels": {"namespace": scaler["metadata"]["namespace"]}}
        in rules_of(manifests)
        and all(each.name != scaled for each in serving(manifests))
        # Requests wait in them, until they drain.
        and all(each.options["ready_when"] == "listening" for each in serving(manifests))
        and all(
            each.probes["readinessProbe"]["grpc"]["service"] == "readiness"
            for each in serving(manifests)
        )
    )


def rules_of(manifests: Sequence[Manifest]) -> list[Manifest]:
    groups = [
        group for each in of_kind(manifests, "PrometheusRule") for group in each["spec"]["groups"]
    ]
    return [rule for group in groups for rule in group["rules"]]


def sends_traces(manifests: Sequence[Manifest]) -> bool:
    for workload in workloads_of(manifests):
        if workload.options["tracing"] != "otlp":
            return False
        collector = urllib.parse.urlsplit(workload.environment["OTEL_EXPORTER_OTLP_ENDPOINT"])
        allowed = {
            port["port"]
            for policy in of_kind(manifests, "NetworkPolicy")
            if policy["spec"]["podSelector"]["matchLabels"].items() <= workload.labels.items()
            for rule in policy["spec"].get("egress", [])
            for port in rule["ports"]
        }
        if not {collector.port, 53} <= allowed:
            return False
    return True


def is_monitored(manifests: Sequence[Manifest]) -> bool:
    """Every pod is scraped once."""
    monitors = of_kind(manifests, "ServiceMonitor")
    if not monitors or not any("alert" in rule for rule in rules_of(manifests)):
        return False
    [monitor] = monitors
    [endpoint] = monitor["spec"]["endpoints"]
    wanted = monitor["spec"]["selector"]["matchLabels"]
    selectors = [
        service["spec"]["selector"]
        for service in of_kind(manifests, "Service")
        if wanted.items() <= service["metadata"]["labels"].items()
        and endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    ]
    return all(
        sum(selector.items() <= workload.labels.items() for selector in selectors) == 1
        for workload in workloads_of(manifests)
    )


def shares_its_cache(manifests: Sequence[Manifest]) -> bool:
    claims = {each["metadata"]["name"] for each in of_kind(manifests, "PersistentVolumeClaim")}
    for workload in computing(manifests):
        volume = workload.volume_at(Path(workload.options["compile_cache"]))
        claim = volume.get("persistentVolumeClaim", {"claimName": None})["claimName"]
        if claim not in claims:
            return False
    return True


def reads_models(manifests: Sequence[Manifest]) -> bool:
    try:
        volumes = [each.volume_at(Path("/models/gpt2")) for each in workloads_of(manifests)]
    except KeyError:
        return False
    claims = [each["persistentVolumeClaim"]["claimName"] for each in volumes]
    return set(claims) == {"shaperouter-models"}


def has_whole_cores(manifests: Sequence[Manifest]) -> bool:
    resources = [each.container["resources"] for each in computing(manifests)]
    return all(each["requests"] == each["limits"] for each in resources)


def has_gpus(manifests: Sequence[Manifest]) -> bool:
    return all(
        each.container["resources"]["limits"].get("nvidia.com/gpu") == 1
        and "worker-gpu:" in each.container["image"]
        for each in computing(manifests)
    )


PROMISES: Mapping[str, Callable[[Sequence[Manifest]], bool]] = {
    "cert-manager": has_certificates,
    "cpu": has_whole_cores,
    "gpu": has_gpus,
    "keda": scales_by_keda,
    "models": reads_models,
    "monitoring": is_monitored,
    "mutual-tls": has_mutual_tls,
    "scale-to-zero": wakes_from_zero,
    "shared-cache": shares_its_cache,
    "tls": has_tls,
    "tokens": has_tokens,
    "tracing": sends_traces,
}


# Components that contain another one, unchanged.
CONTAINED = {"cert-manager": {"mutual-tls"}}

# Whether they keep it.


@functools.cache
def building(base: str, *components: str) -> Sequence[Manifest] | None:
    """The manifests built from them; None if the build fails."""
    try:
        return combined(KUBERNETES / base, components)
    except BuildError:
        return None


def assert_kept(base: str, *components: str) -> None:
    manifests = building(base, *components)
    assert manifests is not None
    for manifest in manifests:
        check(manifest)
    kept = {component for component, keeps in PROMISES.items() if keeps(manifests)}
    assert kept == set(components).union(*(CONTAINED.get(each, ()) for each in components))
    for workload in computing(manifests):
        # The cap follows the limit of the container, whatever component has set that.
        assert workload.options["max_memory"].share is not None
        assert "memory" in workload.container["resources"]["limits"]


def test_every_component_is_in_the_table_and_promises_something() -> None:
    names = {name for pair in TABLE for name in pair}
    assert names - set(BASES) == set(PROMISES) == set(COMPONENTS)


@pytest.mark.parametrize("base", BASES)
def test_a_base_promises_nothing_of_components(base: str) -> None:
    assert_kept(base)


@pytest.mark.parametrize(("base", "component"), list(itertools.product(BASES, COMPONENTS)), ids=str)
def test_a_component_keeps_its_promise_or_does_not_build(base: str, component: str) -> None:
    if combine(base, component):
        assert_kept(base, component)
    else:
        assert building(base, component) is None


@pytest.mark.parametrize(
    ("base", "first", "second"),
    [(base, *pair) for base, pair in itertools.product(BASES, PAIRS) if not combine(base, *pair)],
    ids=str,
)
def test_two_components_that_do_not_combine_do_not_build(
    base: str, first: str, second: str
) -> None:
    assert building(base, first, second) is None
    assert building(base, second, first) is None


@pytest.mark.parametrize("parts", largest_sets(), ids="-".join)
def test_all_that_combine_keep_their_promises_at_once_in_any_order(parts: tuple[str, ...]) -> None:
    # Each pair that combines is in one of these sets.
    base, *components = parts
    assert_kept(base, *components)
    forward, backward = building(base, *components), building(base, *reversed(components))
    assert forward is not None
    assert backward is not None
    assert in_order(forward) == in_order(backward)


def in_order(manifests: Sequence[Manifest]) -> Any:
    """The same for manifests that differ in the order of their lists alone."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items()}
        if isinstance(value, list):
            return sorted((plain(each) for each in value), key=json.dumps)
        return value

    return plain(list(manifests))


# The only fields of an existing workload that Kubernetes lets anybody change.
MUTABLE = {
    "StatefulSet": {
        "minReadySeconds",
        "ordinals",
        "persistentVolumeClaimRetentionPolicy",
        "replicas",
        "template",
        "updateStrategy",
    },
    "Deployment": {"minReadySeconds", "replicas", "strategy", "template"},
}


@pytest.mark.parametrize(("base", "component"), list(itertools.product(BASES, COMPONENTS)), ids=str)
def test_a_component_can_be_added_to_what_runs_and_taken_out(base: str, component: str) -> None:
    before, after = building(base), building(base, component)
    assert before is not None
    if after is None:
        return
    assert fixed(before) == fixed(after)


def fixed(manifests: Sequence[Manifest]) -> Any:
    """The fields of workloads that cannot be changed."""
    return {
        each["metadata"]["name"]: {
            name: value for name, value in each["spec"].items() if name not in MUTABLE[each["kind"]]
        }
        for each in of_kind(manifests, *MUTABLE)
    }


@pytest.mark.parametrize(("base", "component"), list(itertools.product(BASES, COMPONENTS)), ids=str)
def test_no_volume_ties_a_worker_to_a_node(base: str, component: str) -> None:
    manifests = building(base, component)
    if manifests is None:
        return
    modes = {
        each["metadata"]["name"]: each["spec"]["accessModes"]
        for each in of_kind(manifests, "PersistentVolumeClaim")
    }
    for workload in workloads_of(manifests):
        assert "volumeClaimTemplates" not in workload.spec
        for volume in workload.pod["volumes"]:
            if claim := volume.get("persistentVolumeClaim"):
                name = claim["claimName"]
                # The operator's own claim of models is read by all nodes.
                assert name == "shaperouter-models" or modes[name] == ["ReadWriteMany"]


# Why nothing is skipped.


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A base that contains only our namespace."""
    shutil.copy(KUBERNETES / "base" / "namespace.yaml", tmp_path)
    (tmp_path / "kustomization.yaml").write_text("resources: [namespace.yaml]\n")
    return tmp_path


@pytest.mark.parametrize("component", sorted(set(COMPONENTS) - {"monitoring"}))
def test_a_component_does_not_build_without_what_it_changes(component: str, empty: Path) -> None:
    with pytest.raises(BuildError, match=r"no matches for Id|does not exist; cannot merge"):
        combined(empty, [component])


def test_monitoring_changes_nothing(empty: Path) -> None:
    assert combined(empty, ["monitoring"])


@pytest.mark.parametrize("name", [*BASES, *(f"components/{name}" for name in COMPONENTS)])
def test_a_patch_names_its_object_so_that_it_is_never_skipped(name: str) -> None:
    # Kustomize skips a patch with a target that selects nothing.
    patches = kustomization(name).get("patches", [])
    named = {
        identity for each in patches if "target" not in each for identity in objects(name, each)
    }
    targeted = {
        (each["target"]["kind"], each["target"]["name"]) for each in patches if "target" in each
    }
    if name == "components/models":
        # It changes routers only where there are some.
        targeted -= {("Deployment", "shaperouter-router")}
    assert targeted <= named


def kustomization(name: str) -> Manifest:
    text = (KUBERNETES / name / "kustomization.yaml").read_text(encoding="utf-8")
    found: Manifest = yaml.safe_load(text)
    return found


def objects(name: str, patch: Manifest) -> list[tuple[str, str]]:
    text = patch.get("patch") or (KUBERNETES / name / patch["path"]).read_text(encoding="utf-8")
    return [(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(text)]


@pytest.mark.parametrize("component", COMPONENTS)
def test_settings_are_merged_into_what_is_there(component: str) -> None:
    generators = kustomization(f"components/{component}").get("configMapGenerator", [])
    assert {each["behavior"] for each in generators} <= {"merge"}

"""The Helm chart says what kustomize says, and beyond it what its values say."""

from __future__ import annotations

import functools
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.helm import CHART, VALUES, helm_lint, helm_template
from harness.manifests import (
    COMPONENTS,
    KUBERNETES,
    BuildError,
    Manifest,
    Workload,
    combined,
    of_kind,
    workloads_of,
)
from harness.schemas import check
from shaperouter_service import __version__

# Components that exclude each other are in different sets.
SETS = [
    (),
    *((name,) for name in COMPONENTS),
    ("cpu", "models", "shared-cache", "cert-manager", "tls", "tokens", "tracing", "monitoring"),
    ("gpu", "scale-to-zero", "monitoring", "mutual-tls", "models"),
    ("gpu", "keda", "monitoring", "cert-manager"),
]


@functools.cache
def kustomized(components: tuple[str, ...]) -> Sequence[Manifest]:
    return combined(KUBERNETES / "base", components)


def merged(components: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in itertools.chain(*(VALUES[each].items() for each in components)):
        found[name] = found[name] | value if isinstance(found.get(name), dict) else value
    return found


def comparable(manifests: Sequence[Manifest]) -> dict[tuple[str, str], Any]:
    """The objects by kind and name, without what each tool adds of its own.

    Helm makes no namespace, and its annotations are its own. Kustomize has settings in ConfigMaps,
    the chart in pods; `environments` compares them.
    """
    found = {}
    for manifest in manifests:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if kind == "Namespace" or (kind == "ConfigMap" and SETTINGS.fullmatch(name)):
            continue
        plain = in_order(manifest)
        annotations = plain["metadata"].get("annotations", {})
        kept = {key: each for key, each in annotations.items() if not key.startswith("helm.sh/")}
        plain["metadata"] = plain["metadata"] | {"annotations": kept}
        if kind in ("Deployment", "StatefulSet"):
            [container] = plain["spec"]["template"]["spec"]["containers"]
            container.pop("env", None)
            container.pop("envFrom", None)
        found[kind, name] = plain
    return found


# ConfigMaps of settings, with kustomize's hash.
SETTINGS = re.compile(r"shaperouter(?:-router|-worker)?-[a-z0-9]{10}")


def environments(manifests: Sequence[Manifest]) -> dict[str, dict[str, str]]:
    """The variables of each workload, wherever they come from."""
    return {each.name: each.environment for each in workloads_of(manifests)}


def in_order(value: Any) -> Any:
    """The same for lists that differ in their order alone."""
    if isinstance(value, dict):
        return {key: in_order(each) for key, each in value.items()}
    if isinstance(value, list):
        return sorted(map(in_order, value), key=functools.partial(json.dumps, sort_keys=True))
    return value


@pytest.mark.parametrize("components", SETS, ids=lambda names: "-".join(names) or "base")
def test_the_chart_says_what_kustomize_says(components: tuple[str, ...]) -> None:
    rendered = helm_template(merged(components))
    assert environments(rendered) == environments(kustomized(components))
    ours, theirs = comparable(rendered), comparable(kustomized(components))
    assert set(ours) == set(theirs)
    for name, expected in theirs.items():
        assert ours[name] == expected


def test_every_component_has_its_values() -> None:
    assert set(VALUES) == set(COMPONENTS)


def test_helm_finds_nothing_wrong() -> None:
    helm_lint()


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == __version__


def test_a_namespace_of_ones_own_is_everywhere() -> None:
    values = merged(["scale-to-zero", "monitoring", "cert-manager", "tracing"])
    manifests = helm_template(values, namespace="elsewhere")
    for manifest in manifests:
        assert manifest["metadata"]["namespace"] == "elsewhere"
        assert not re.search(r'namespace(=\\?"|: )shaperouter\b', yaml.safe_dump(manifest))


# What only the chart has.

MANY = {
    "models": [
        {"name": "demo"},
        {"name": "gpt2", "source": "/models/gpt2"},
        {"name": "whisper", "source": "/models/whisper"},
    ],
    "modelVolume": {"claim": "checkpoints"},
    "pools": [
        {
            "name": "text",
            "models": ["demo", "gpt2"],
            "device": "cpu",
            "dtype": "int8",
            "minimum": 3,
            "maximum": 5,
            "target": 4,
            "nodeSelector": {"node.kubernetes.io/instance-type": "c7i.4xlarge"},
            "canary": {
                "replicas": 1,
                "tag": "0.2.0",
                "settings": {"SHAPEROUTER_SLOTS": "16"},
            },
        },
        {
            "name": "speech",
            "models": ["whisper"],
            "device": "gpu",
            "dtype": "float32",
            "replicas": 2,
            "resources": {
                "requests": {"cpu": "2", "memory": "8Gi"},
                "limits": {"memory": "8Gi", "nvidia.com/gpu": 1},
            },
        },
    ],
}


@functools.cache
def many() -> Mapping[str, Workload]:
    manifests = helm_template(MANY)
    for manifest in manifests:
        check(manifest)
    return {each.name.removeprefix("shaperouter-"): each for each in workloads_of(manifests)}


def test_each_pool_has_its_own_workers() -> None:
    assert set(many()) == {"router", "text", "text-canary", "speech"}
    pools = [each for name, each in many().items() if name != "router"]
    selectors = [tuple(each.spec["selector"]["matchLabels"].items()) for each in pools]
    # None takes the pods of another one.
    assert len(set(selectors)) == len(selectors)
    for each in pools:
        assert each.spec["selector"]["matchLabels"].items() <= each.labels.items()


def test_a_pool_holds_its_models_and_routers_know_all() -> None:
    chosen = {name: each.options["models"] for name, each in many().items()}
    text = ("demo", "gpt2=/models/gpt2")
    assert chosen == {
        "router": (*text, "whisper=/models/whisper"),
        "text": text,
        "text-canary": text,
        "speech": ("whisper=/models/whisper",),
    }


def test_a_pool_has_its_device_type_nodes_and_number() -> None:
    text, speech = many()["text"], many()["speech"]
    assert text.options["dtype"] == "int8"
    assert text.pod["nodeSelector"] == {
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "c7i.4xlarge",
    }
    assert "replicas" not in text.spec
    assert speech.options["dtype"] == "float32"
    assert "worker-gpu:" in speech.container["image"]
    assert speech.container["resources"]["requests"]["cpu"] == "2"
    assert speech.options["threads"] == 2
    assert speech.spec["replicas"] == 2


def test_a_canary_is_its_pool_but_for_image_and_settings() -> None:
    text, canary = many()["text"], many()["text-canary"]
    assert canary.spec["replicas"] == 1
    assert canary.container["image"].endswith(":0.2.0")
    assert text.container["image"].endswith(f":{__version__}")
    changed = {
        name
        for name in text.environment.keys() | canary.environment.keys()
        if text.environment.get(name) != canary.environment.get(name)
    }
    assert changed == {"SHAPEROUTER_SLOTS"}
    # Routers find it as they find all workers.
    [service] = [
        each
        for each in of_kind(helm_template(MANY), "Service")
        if each["metadata"]["name"] == "shaperouter-worker"
    ]
    assert service["spec"]["selector"].items() <= canary.labels.items()


@pytest.mark.parametrize("by", ["hpa", "keda"])
def test_a_pool_scales_by_each_of_its_models(by: str) -> None:
    manifests = helm_template(MANY | {"autoscaling": {"by": by}})
    for manifest in manifests:
        check(manifest)
    # Neither a fixed number nor a canary is scaled.
    [scaler] = of_kind(manifests, "HorizontalPodAutoscaler", "ScaledObject")
    assert scaler["spec"]["scaleTargetRef"]["name"] == "shaperouter-text"
    if by == "hpa":
        assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (3, 5)
        metrics = [each["object"] for each in scaler["spec"]["metrics"]]
        models = [each["metric"]["selector"]["matchLabels"]["model"] for each in metrics]
        assert {each["target"]["averageValue"] for each in metrics} == {"4"}
    else:
        assert (scaler["spec"]["minReplicaCount"], scaler["spec"]["maxReplicaCount"]) == (3, 5)
        queries = [each["metadata"]["query"] for each in scaler["spec"]["triggers"]]
        models = [query.split('model="')[1].split('"')[0] for query in queries]
    assert models == ["demo", "gpt2"]


def test_a_pool_at_zero_starts_for_a_request_that_names_no_model() -> None:
    pools = [{"name": "text", "models": ["demo"], "minimum": 0}]
    scaling = {"by": "keda", "scaleToZero": True}
    [scaler] = of_kind(helm_template({"pools": pools, "autoscaling": scaling}), "ScaledObject")
    [trigger] = scaler["spec"]["triggers"]
    # Routers count it under this name, as it waits for all models.
    assert r'model=~"demo|\\(unknown\\)"' in trigger["metadata"]["query"]


FILLED = {
    "images": {
        "s3": {"repository": "example.com/aws", "tag": "1"},
        "oci": {"repository": "example.com/oras", "tag": "1"},
    },
    "modelVolume": {
        "claim": "checkpoints",
        "fill": [
            {"name": "a", "from": "hub://us/a", "revision": "1234", "secret": "hub"},
            {"name": "b", "from": "s3://bucket/b"},
            {"name": "c", "from": "oci://example.com/c:1"},
        ],
    },
}


def test_jobs_fill_the_volume_before_pods_read_it() -> None:
    manifests = helm_template(FILLED)
    jobs = of_kind(manifests, "Job")
    for job in jobs:
        check(job)
        assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
        labels = job["spec"]["template"]["metadata"]["labels"]
        # Policies of the service would keep it from the network.
        for policy in of_kind(manifests, "NetworkPolicy"):
            assert not policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    pods = [each["spec"]["template"]["spec"] for each in jobs]
    claims = {
        volume["persistentVolumeClaim"]["claimName"]
        for pod in pods
        for volume in pod["volumes"]
        if "persistentVolumeClaim" in volume
    }
    assert claims == {"checkpoints"}
    commands = [pod["containers"][0]["command"] for pod in pods]
    assert [command[0].rpartition("/")[2] for command in commands] == ["hf", "aws", "oras"]
    assert [f"/models/{name}" in command for name, command in zip("abc", commands, strict=True)]


def test_the_hub_is_asked_as_its_program_wants_to_be() -> None:
    program, *arguments = next(
        job["spec"]["template"]["spec"]["containers"][0]["command"]
        for job in of_kind(helm_template(FILLED), "Job")
    )
    # From the image of routers, which has the package of this program.
    assert program == "/opt/shaperouter/bin/hf"
    done = subprocess.run(
        [Path(sys.executable).with_name("hf"), arguments[0], "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(each in done.stdout for each in arguments if each.startswith("--"))


@pytest.mark.parametrize(
    "values",
    [
        {"pool": []},
        {"pools": []},
        {"pools": [{"name": "worker", "device": "tpu"}]},
        {"pools": [{"name": "Worker"}]},
        {"pools": [{"name": "worker", "dtype": "int7"}]},
        {"pools": [{"name": "router"}]},
        {"pools": [{"name": "a"}, {"name": "a"}]},
        {"pools": [{"name": "a", "models": ["gpt3"]}]},
        {"models": [{"source": "/models/gpt2"}]},
        {"modelVolume": {"fill": [{"name": "a", "from": "hub://us/a"}]}},
        {"modelVolume": {"claim": "c", "fill": [{"name": "a", "from": "ftp://us/a"}]}},
        {"modelVolume": {"claim": "c", "fill": [{"name": "a", "from": "s3://us/a"}]}},
        {"autoscaling": {"by": "vpa"}},
        {"autoscaling": {"scaleToZero": True}},
        {"settings": {"all": {"SLOTS": "8"}}},
        {"rolesTls": True},
    ],
    ids=str,
)
def test_wrong_values_are_refused(values: Mapping[str, Any]) -> None:
    with pytest.raises(BuildError):
        helm_template(values)


def test_examples_of_the_page_build(tmp_path: Path) -> None:
    page = (CHART.parent / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"```yaml\n(.*?)```", page, flags=re.S)
    assert examples
    for example in examples:
        for manifest in helm_template(yaml.safe_load(example)):
            check(manifest)

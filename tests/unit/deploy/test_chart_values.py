"""Every value of the chart has its effect, or is refused with a message that says what to do."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import click
import pytest

from harness.helm import CHART, helm_notes, helm_template
from harness.manifests import BuildError, Workload, of_kind, workloads_of
from shaperouter_service.commands.group import cli

CLAIM = {"modelVolume": {"claim": "checkpoints"}}
GPT2 = {"name": "gpt2", "source": "/models/gpt2"}
# Seconds that a process needs to stop once its requests have ended.
LAST_WORDS = 10
TWO_POOLS = {
    **CLAIM,
    "models": [{"name": "demo"}, GPT2],
    "pools": [{"name": "a", "models": ["demo"]}, {"name": "b", "models": ["gpt2"]}],
}


def rendered(values: Mapping[str, Any]) -> Mapping[str, Workload]:
    found = workloads_of(helm_template(values))
    return {each.name.removeprefix("shaperouter-"): each for each in found}


def pool(**differences: Any) -> dict[str, Any]:
    return {"pools": [{"name": "a", **differences}]}


def settings(role: str, **variables: str) -> dict[str, Any]:
    return {"settings": {role: {f"SHAPEROUTER_{name}": each for name, each in variables.items()}}}


# What a change restarts.


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """The workloads whose pods are replaced."""
    ours, theirs = rendered(before), rendered(after)
    assert set(ours) == set(theirs)
    return {name for name in ours if ours[name].spec["template"] != theirs[name].spec["template"]}


@pytest.mark.parametrize(
    ("values", "workloads"),
    [
        (settings("all", GRACE="200"), {"router", "a", "b"}),
        (settings("router", MAX_CALLS="7"), {"router"}),
        (settings("worker", SLOTS="4"), {"a", "b"}),
        (
            {
                "pools": [
                    {"name": "a", "models": ["demo"], "settings": {"SHAPEROUTER_SLOTS": "4"}},
                    {"name": "b", "models": ["gpt2"]},
                ]
            },
            {"a"},
        ),
        # Routers read the tokenizer of a new model.
        (
            {
                "models": [{"name": "demo"}, GPT2, {"name": "new", "source": "/models/new"}],
                "pools": [
                    {"name": "a", "models": ["demo"]},
                    {"name": "b", "models": ["gpt2", "new"]},
                ],
            },
            {"router", "b"},
        ),
    ],
    ids=["all", "router", "worker", "pool", "model"],
)
def test_a_change_restarts_only_the_pods_that_read_it(
    values: Mapping[str, Any], workloads: set[str]
) -> None:
    assert changed(TWO_POOLS, TWO_POOLS | values) == workloads


def test_a_pod_of_an_older_revision_keeps_its_settings() -> None:
    # A ConfigMap of a constant name would have the settings of the newest revision.
    manifests = helm_template(TWO_POOLS | {"monitoring": {"enabled": True}})
    maps = {each["metadata"]["name"] for each in of_kind(manifests, "ConfigMap")}
    assert maps == {"shaperouter-dashboard"}
    for workload in workloads_of(manifests):
        assert "envFrom" not in workload.container


def test_no_variable_is_given_twice() -> None:
    values = {
        "rolesTls": "secrets",
        "callersTls": True,
        "tokens": True,
        "tracing": {"enabled": True},
    }
    for workload in rendered(TWO_POOLS | values).values():
        names = [each["name"] for each in workload.container["env"]]
        assert len(set(names)) == len(names)


# What has its effect.

RECORDINGS = "max_recording_memory"


def router_memory(limit: str) -> dict[str, Any]:
    return {"router": {"resources": {"limits": {"memory": limit}}}}


@pytest.mark.parametrize(
    ("values", "workload", "option", "expected"),
    [
        # The settings of all roles replace those of the base, of a role too.
        (settings("all", SLOTS="4"), "worker", "slots", 4),
        (settings("worker", SLOTS="4"), "worker", "slots", 4),
        (
            settings("worker", SLOTS="4") | pool(settings={"SHAPEROUTER_SLOTS": "2"}),
            "a",
            "slots",
            2,
        ),
        # Those of workers replace those of the device.
        (settings("worker", COMPILE_THREADS="3") | pool(device="cpu"), "a", "compile_threads", 3),
        (settings("router", MAX_RECORDING_MEMORY="3MB"), "router", RECORDINGS, 3 * 10**6),
        # Half of the memory, and a quarter.
        (router_memory("4Gi"), "router", RECORDINGS, 2**31),
        (router_memory("4Gi"), "router", "max_tensor_memory", 2**30),
        (router_memory("1500M"), "router", RECORDINGS, 715 * 2**20),
    ],
    ids=str,
)
def test_a_value_has_its_effect(
    values: Mapping[str, Any], workload: str, option: str, expected: int
) -> None:
    assert rendered(values)[workload].options[option] == expected


@pytest.mark.parametrize(
    ("values", "workloads"),
    [
        (settings("all", GRACE="900.5"), {"router", "a", "a-canary"}),
        (settings("router", GRACE="900.5"), {"router"}),
        (settings("worker", GRACE="900.5"), {"a", "a-canary"}),
        (pool(settings={"SHAPEROUTER_GRACE": "900.5"}), {"a", "a-canary"}),
        (pool(canary={"settings": {"SHAPEROUTER_GRACE": "900.5"}}), {"a-canary"}),
    ],
    ids=["all", "router", "worker", "pool", "canary"],
)
def test_a_pod_has_time_to_finish_what_runs(values: Mapping[str, Any], workloads: set[str]) -> None:
    defaults = {"poolDefaults": {"canary": {"replicas": 1}}}
    found = rendered(pool() | values | defaults)
    assert {name for name in found if found[name].options["grace"] == 900.5} == workloads
    for each in found.values():
        needed = each.sleep + each.options["grace"] + LAST_WORDS
        assert each.pod["terminationGracePeriodSeconds"] >= needed


def test_a_pool_may_have_every_dtype_of_the_service() -> None:
    [option] = [each for each in cli.commands["worker"].params if each.name == "dtype"]
    assert isinstance(option.type, click.Choice)
    for dtype in option.type.choices:
        [worker] = of_kind(helm_template(pool(dtype=dtype)), "StatefulSet")
        assert Workload(worker, []).environment["SHAPEROUTER_DTYPE"] == dtype


def test_empty_values_are_those_without_settings() -> None:
    # As in a file whose settings are commented out.
    empty = {"settings": dict.fromkeys(("all", "router", "worker"))}
    assert changed({}, empty | {"router": {"resources": {"limits": None}}}) == {"router"}
    assert changed({}, empty) == set()


@pytest.mark.parametrize(("minimum", "replicas"), [(None, 2), (3, 3)])
def test_without_an_autoscaler_a_pool_has_its_minimum(minimum: int | None, replicas: int) -> None:
    values = pool(minimum=minimum) | {"autoscaling": {"by": "off"}}
    assert rendered(values)["a"].spec["replicas"] == replicas


@pytest.mark.parametrize("by", ["hpa", "keda"])
def test_a_pool_keeps_two_workers(by: str) -> None:
    manifests = helm_template({"autoscaling": {"by": by}})
    [scaler] = of_kind(manifests, "HorizontalPodAutoscaler", "ScaledObject")
    minimum = {"hpa": "minReplicas", "keda": "minReplicaCount"}[by]
    assert scaler["spec"][minimum] == 2


def test_a_component_label_selects_all_pools() -> None:
    workers = of_kind(helm_template(TWO_POOLS), "StatefulSet")
    assert {each["metadata"]["labels"]["shaperouter/pool"] for each in workers} == {"a", "b"}
    for each in workers:
        assert each["metadata"]["labels"]["app.kubernetes.io/component"] == "worker"


def test_the_compile_cache_outlives_the_release() -> None:
    [claim] = of_kind(helm_template({"sharedCache": {"enabled": True}}), "PersistentVolumeClaim")
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


# What operators must make themselves.

PREREQUISITES = {
    "tokens": True,
    "callersTls": True,
    "rolesTls": "secrets",
    "modelVolume": {"claim": "checkpoints"},
}


def missing(values: Mapping[str, Any]) -> set[str]:
    """The Secrets and claims that pods name and the chart does not make."""
    volumes = [each for pod in rendered(values).values() for each in pod.pod["volumes"]]
    # With `tokens` routers end without theirs, which is optional for Kubernetes alone.
    secrets = {each["secret"]["secretName"] for each in volumes if "secret" in each}
    claims = {
        each["persistentVolumeClaim"]["claimName"]
        for each in volumes
        if "persistentVolumeClaim" in each
    }
    return secrets | claims


def test_notes_name_what_pods_wait_for() -> None:
    checks = [line for line in helm_notes(PREREQUISITES).splitlines() if " get " in line]
    named = {word for line in checks for word in line.split()}
    assert missing(PREREQUISITES) <= named


def test_notes_name_nothing_that_pods_do_not_wait_for() -> None:
    notes = helm_notes({})
    assert "get secret" not in notes
    assert "persistentvolumeclaim" not in notes


def test_the_page_names_what_pods_wait_for() -> None:
    page = (CHART.parent / "README.md").read_text(encoding="utf-8")
    table = page.split("## Before the installation")[1].split("\n## ")[0]
    secrets = missing(PREREQUISITES) - {"checkpoints"}
    assert secrets == set(re.findall(r"`(shaperouter-[\w-]+)`", table))


# What is refused.


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"models": [GPT2]}, "modelVolume.claim"),
        (settings("all", MODEL_REPOSITORY="/models"), "modelVolume.claim"),
        (CLAIM | {"models": [{"name": "gpt2", "source": "us/gpt2"}]}, "modelVolume.fill"),
        (CLAIM | {"models": [{"name": "gpt2", "source": "/data/gpt2"}]}, "not in /models"),
        ({"models": [{"name": "gpt2"}]}, "only demo and g2p are built in"),
        (settings("all", GRACE="5m"), 'must be a number of seconds such as 300, got "5m"'),
        (settings("all", MODLE="demo"), "unknown variable SHAPEROUTER_MODLE"),
        (settings("all", MODEL="demo"), "use models"),
        (settings("router", LISTEN="0.0.0.0:1"), "fixed ports"),
        (settings("router", SLOTS="8"), "use settings.worker"),
        (settings("router", WORKER="w:1"), "the Service shaperouter-worker"),
        (settings("worker", ALIAS="a=b"), "use settings.router"),
        (settings("worker", THREADS="8"), "resources.requests.cpu"),
        (settings("worker", COMPILE_CACHE="/tmp/c"), "sharedCache"),
        (pool(settings={"SHAPEROUTER_THREADS": "8"}), "resources.requests.cpu"),
        (pool(settings={"SHAPEROUTER_SLOT": "8"}), "unknown variable SHAPEROUTER_SLOT"),
        (pool(canary={"settings": {"SHAPEROUTER_SLOT": "8"}}), "unknown variable SHAPEROUTER_SLOT"),
        (pool(dtype="int8", settings={"SHAPEROUTER_DTYPE": "float32"}), "remove one"),
        (settings("worker", TLS_CERT="/c") | {"rolesTls": "secrets"}, "see rolesTls"),
        (settings("router", TLS_CERT="/c") | {"callersTls": True}, "see callersTls"),
        (
            settings("router", READY_WHEN="workers")
            | {"autoscaling": {"by": "keda", "scaleToZero": True}},
            "see autoscaling.scaleToZero",
        ),
        (settings("worker", DRAFT="demo=/models/small"), "modelVolume.claim"),
        (CLAIM | settings("worker", DRAFT="demo=us/small"), "must be in /models"),
        (pool(resources={"limits": {"memory": "4Gi"}}), "requests.cpu"),
        (pool(resources={"requests": None}), "requests.cpu"),
        (pool(resources={"requests": {"cpu": "0"}}), "requests.cpu"),
        (pool(resources={"requests": {"cpu": "4"}}), "limits.memory"),
        (pool(resources={"requests": {"cpu": "4"}, "limits": None}), "limits.memory"),
        (
            pool(
                device="gpu",
                resources={"requests": {"cpu": "4"}, "limits": {"memory": "9Gi"}},
            ),
            "add nvidia.com/gpu to limits",
        ),
        (pool(maximum=1), "minimum of 2 above its maximum of 1"),
        (pool(minimum=0), "needs autoscaling.scaleToZero"),
        (router_memory("1 GB"), "limits.memory"),
    ],
    ids=str,
)
def test_a_value_without_effect_is_refused(values: Mapping[str, Any], message: str) -> None:
    with pytest.raises(BuildError) as refused:
        helm_template(values)
    assert message in str(refused.value)


def test_the_chart_knows_the_variables_of_this_program() -> None:
    made = subprocess.run(
        [sys.executable, CHART.parent / "make_known.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr

"""docs/inference-extension.md: its objects are valid, and lead to the pods of `gateway`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.manifests import Workload, workloads
from harness.registry import metrics
from harness.schemas import check

TEXT = (Path(__file__).parents[3] / "docs" / "inference-extension.md").read_text(encoding="utf-8")
[OBJECTS] = re.findall(r"```yaml\n(.*?)```", TEXT, flags=re.S)
[OPTIONS] = re.findall(r"```sh\n(.*?)```", TEXT, flags=re.S)
POOL, POLICY = yaml.safe_load_all(OBJECTS)


@pytest.fixture(scope="module")
def pod() -> Workload:
    [found] = workloads("gateway")
    return found


@pytest.mark.parametrize("manifest", [POOL, POLICY], ids=["pool", "policy"])
def test_every_object_is_valid(manifest: dict[str, Any]) -> None:
    check(manifest)


def test_the_pool_is_of_the_pods_and_their_http_port(pod: Workload) -> None:
    assert POOL["spec"]["selector"]["matchLabels"].items() <= pod.labels.items()
    assert POOL["spec"]["targetPorts"] == [{"number": pod.ports["http"]}]


def test_the_picker_may_read_the_metrics_that_it_is_told_of(pod: Workload) -> None:
    port = pod.ports["metrics"]
    [rule] = POLICY["spec"]["ingress"]
    assert rule["ports"] == [{"port": port}]
    assert f"--model-server-metrics-port={port}" in OPTIONS.split()
    named = re.findall(r"-metric=(\w+)\{(\w+)=", OPTIONS)
    assert len(named) == 2
    for name, label in named:
        assert label in metrics()[name].labels

"""The component `monitoring` in the cluster that most have: kube-prometheus-stack."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from harness.manifests import BUILDS, KUBERNETES, built, kustomize, of_kind

READ = ("ServiceMonitor", "PrometheusRule")


@pytest.mark.parametrize("name", BUILDS)
def test_kube_prometheus_stack_reads_it_by_its_label(name: str) -> None:
    for manifest in of_kind(built(name), *READ):
        assert manifest["metadata"]["labels"]["release"] == "kube-prometheus-stack"


def test_release_and_runbooks_are_replaced_as_the_page_says(tmp_path: Path) -> None:
    page = (KUBERNETES / "components" / "monitoring" / "README.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```yaml\n(.*?)```", page, flags=re.S)
    ours = os.path.relpath(KUBERNETES, tmp_path)
    base = {
        "resources": [f"{ours}/base"],
        "components": [f"{ours}/components/{name}" for name in ("monitoring", "scale-to-zero")],
    }
    example = example.replace("../shaperouter/deploy/kubernetes", ours)
    text = yaml.safe_dump(base) + example
    (tmp_path / "kustomization.yaml").write_text(text, encoding="utf-8")
    manifests = kustomize(tmp_path)
    labels = [each["metadata"]["labels"]["release"] for each in of_kind(manifests, *READ)]
    assert labels == ["monitoring"] * 3
    alerts = [
        rule
        for each in of_kind(manifests, "PrometheusRule")
        for group in each["spec"]["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    assert alerts
    for alert in alerts:
        page_of_alert = f"https://git.example.com/shaperouter/docs/runbooks/{alert['alert']}.md"
        assert alert["annotations"]["runbook_url"] == page_of_alert

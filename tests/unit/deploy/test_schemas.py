"""Every manifest is valid for Kubernetes, or for the project that adds its kind."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from harness.manifests import BUILDS, COMPONENTS, KUBERNETES, built, kustomize, of_kind
from harness.schemas import check


@pytest.mark.parametrize("name", BUILDS)
def test_every_object_is_valid(name: str) -> None:
    for manifest in built(name):
        check(manifest)


@pytest.mark.parametrize("name", BUILDS)
def test_every_object_is_in_the_namespace(name: str) -> None:
    for manifest in built(name):
        if manifest["kind"] != "Namespace":
            assert manifest["metadata"]["namespace"] == "shaperouter", manifest["metadata"]["name"]


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_namespace_of_ones_own_is_everywhere(component: str, tmp_path: Path) -> None:
    kubernetes = os.path.relpath(KUBERNETES, tmp_path)
    kustomization = {
        "namespace": "elsewhere",
        "resources": [f"{kubernetes}/base"],
        "components": [f"{kubernetes}/components/{component}"],
        "transformers": [f"{kubernetes}/transformers/namespace"],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
    for manifest in kustomize(tmp_path):
        if manifest["kind"] == "Namespace":
            assert manifest["metadata"]["name"] == "elsewhere"
            continue
        assert manifest["metadata"]["namespace"] == "elsewhere"
        # What names a namespace in a text: a query, a label of a rule.
        text = yaml.safe_dump(manifest)
        assert not re.search(r"namespace(=\\?\"|: )shaperouter\b", text), text


def test_the_example_of_the_readme_builds(tmp_path: Path) -> None:
    page = (KUBERNETES / "README.md").read_text(encoding="utf-8")
    example, *_ = re.findall(r"```yaml\n(.*?)```", page, flags=re.S)
    ours = os.path.relpath(KUBERNETES, tmp_path)
    example = example.replace("../shaperouter/deploy/kubernetes", ours).replace("…", "0" * 64)
    (tmp_path / "kustomization.yaml").write_text(example, encoding="utf-8")
    # The image for GPUs has been built nowhere: the first example must not begin with it.
    assert {"shaperouter/router", "shaperouter/worker"} == {
        each["name"] for each in yaml.safe_load(example)["images"]
    }
    manifests = kustomize(tmp_path)
    for manifest in manifests:
        check(manifest)
    settings = [each["data"] for each in of_kind(manifests, "ConfigMap")]
    assert {"gpt2=/models/gpt2"} == {
        data["SHAPEROUTER_MODEL"] for data in settings if "SHAPEROUTER_MODEL" in data
    }

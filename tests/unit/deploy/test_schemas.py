"""Every manifest is what Kubernetes, or whoever adds its kind, takes."""

from __future__ import annotations

import functools
import json
import os
import re
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

from harness.manifests import BUILDS, KUBERNETES, Manifest, built, kustomize, of_kind

# The oldest that has all we use: the sleep before a stop without a program for it.
OLDEST = "1.30"
NEWEST = "1.35"

SCHEMAS = {
    path.stem: json.loads(path.read_text()) for path in Path(__file__).parent.glob("schemas/*.json")
}


def check(manifest: Manifest) -> None:
    check_once(json.dumps(manifest))


@functools.cache  # most objects are the same in most builds
def check_once(text: str) -> None:
    manifest = json.loads(text)
    if schema := SCHEMAS.get(manifest["kind"]):
        jsonschema.validate(manifest, schema, cls=jsonschema.Draft7Validator)
    else:
        for version in (OLDEST, NEWEST):
            kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("name", BUILDS)
def test_every_object_is_valid(name: str) -> None:
    for manifest in built(name):
        check(manifest)


@pytest.mark.parametrize("name", BUILDS)
def test_every_object_is_in_the_namespace(name: str) -> None:
    for manifest in built(name):
        if manifest["kind"] != "Namespace":
            assert manifest["metadata"]["namespace"] == "shaperouter", manifest["metadata"]["name"]


COMBINATIONS = [
    ["cpu", "models", "monitoring", "shared-cache", "tracing"],
    ["gpu", "models", "monitoring", "keda", "tls", "tokens"],
    ["gpu", "shared-cache", "monitoring", "gateway", "models"],
]


@pytest.mark.parametrize("components", COMBINATIONS, ids="+".join)
def test_components_go_together(components: list[str], tmp_path: Path) -> None:
    ours = Path(os.path.relpath(KUBERNETES, tmp_path))
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [str(ours / "base")],
        "components": [str(ours / "components" / name) for name in components],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    for manifest in kustomize(tmp_path):
        check(manifest)


def test_the_example_of_the_readme_builds(tmp_path: Path) -> None:
    page = (KUBERNETES / "README.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```yaml\n(.*?)```", page, flags=re.S)
    ours = os.path.relpath(KUBERNETES, tmp_path)
    example = example.replace("../shaperouter/deploy/kubernetes", ours).replace("…", "0" * 64)
    (tmp_path / "kustomization.yaml").write_text(example, encoding="utf-8")
    manifests = kustomize(tmp_path)
    for manifest in manifests:
        check(manifest)
    settings = [each["data"] for each in of_kind(manifests, "ConfigMap")]
    assert {"gpt2=/models/gpt2"} == {
        data["SHAPEROUTER_MODEL"] for data in settings if "SHAPEROUTER_MODEL" in data
    }

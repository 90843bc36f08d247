"""The schemas of Kubernetes and of custom resources."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import jsonschema
import kubernetes_validate

from harness.manifests import Manifest

SCHEMA_FILES = (Path(__file__).parents[1] / "unit" / "deploy" / "schemas").glob("*.json")

# The oldest version that has all we use. The newest feature is the `sleep` action before a stop.
OLDEST = "1.30"
NEWEST = "1.35"

SCHEMAS = {path.stem: json.loads(path.read_text()) for path in SCHEMA_FILES}


def check(manifest: Manifest) -> None:
    """Checks a manifest against the schema of its kind."""
    _check(json.dumps(manifest))


@functools.cache  # most objects are the same in most builds
def _check(text: str) -> None:
    manifest = json.loads(text)
    if schema := SCHEMAS.get(manifest["kind"]):
        jsonschema.validate(manifest, schema, cls=jsonschema.Draft7Validator)
    else:
        for version in (OLDEST, NEWEST):
            kubernetes_validate.validate(manifest, version, strict=True)

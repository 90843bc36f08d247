"""The Helm chart, as Helm renders it."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from harness.manifests import KUBERNETES, BuildError, Manifest
from harness.tools import tool

CHART = KUBERNETES.parent / "helm" / "shaperouter"

# Values that give the chart the effect of each component.
VALUES: Mapping[str, Mapping[str, Any]] = {
    "cert-manager": {"rolesTls": "cert-manager"},
    "cpu": {"pools": [{"name": "worker", "device": "cpu"}]},
    "gpu": {"pools": [{"name": "worker", "device": "gpu"}]},
    "keda": {"autoscaling": {"by": "keda"}},
    "models": {"modelVolume": {"claim": "shaperouter-models"}},
    "monitoring": {"monitoring": {"enabled": True}},
    "mutual-tls": {"rolesTls": "secrets"},
    "scale-to-zero": {"autoscaling": {"by": "keda", "scaleToZero": True}},
    "shared-cache": {"sharedCache": {"enabled": True}},
    "tls": {"callersTls": True},
    "tokens": {"tokens": True},
    "tracing": {"tracing": {"enabled": True}},
}


def helm_template(values: Mapping[str, Any], *, namespace: str = "shaperouter") -> list[Manifest]:
    """Renders the chart.

    Raises:
        BuildError: The message is Helm's.
    """
    text = _helm(values, "template", "--namespace", namespace)
    return [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]


def helm_notes(values: Mapping[str, Any]) -> str:
    """What Helm prints after an installation.

    Raises:
        BuildError: The message is Helm's.
    """
    text = _helm(values, "install", "--namespace", "shaperouter", "--dry-run=client")
    return text.partition("\nNOTES:\n")[2]


def _helm(values: Mapping[str, Any], command: str, *options: str) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(dict(values), file)
        file.flush()
        arguments = [command, "shaperouter", str(CHART), "--values", file.name, *options]
        done = subprocess.run(
            [tool("helm"), *arguments], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise BuildError(done.stderr)
    return done.stdout


def helm_lint(chart: Path = CHART) -> None:
    """Has Helm check the chart.

    Raises:
        BuildError: The message is Helm's.
    """
    command = [tool("helm"), "lint", "--strict", str(chart)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(done.stdout + done.stderr)

"""The cluster's own kustomization, as docs/operating.md has operators write and edit it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from harness.manifests import KUBERNETES, Workload, kustomize, of_kind

# Beyond the base: checkpoints of our own, one cache for all workers, TLS of callers and between
# roles, and tokens.
COMPONENTS = ("models", "shared-cache", "mutual-tls", "tls", "tokens")

# What the operator sets, beside the model: models may be loaded while the service runs and are
# unloaded once nobody uses them, and there are few shapes, so that all are soon compiled.
REPOSITORY = {"SHAPEROUTER_MODEL_REPOSITORY": "/models/"}
SETTINGS = {
    "shaperouter-router": {
        "SHAPEROUTER_ON_DEMAND_MEMORY": "100MB",
        "SHAPEROUTER_IDLE_UNLOAD": "10",
    },
    "shaperouter-worker": {
        "SHAPEROUTER_SLOTS": "2",
        "SHAPEROUTER_PREFILL_LENGTHS": "16",
        "SHAPEROUTER_DECODE_LENGTHS": "64",
    },
}

# The base gives each worker four cores, which this machine does not have.
SMALLER = {"SHAPEROUTER_THREADS": "1"}


@dataclass(frozen=True, kw_only=True)
class Template:
    """Containers of the manifests, run as processes of this machine.

    Attributes:
        arguments: Arguments of `shaperouterd`.
        environment: Variables of the container.
        sleep: Seconds between the decision to end a pod and SIGTERM.
        grace: Seconds from that decision to SIGKILL.
    """

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    sleep: float
    grace: float


class Kustomization:
    """The cluster's manifests, in a directory of an operator's own."""

    def __init__(self, directory: Path, volumes: Path) -> None:
        """Begins with none of the operator's settings.

        Args:
            directory: Where kustomization.yaml is written.
            volumes: Where secrets and claims lie on this machine, by their names.
        """
        self._directory = directory
        self._volumes = volumes
        directory.mkdir(parents=True)

    def apply(self, model: str) -> dict[str, Template]:
        """Writes the operator's settings down and builds; returns what each workload runs.

        Args:
            model: What is served, as NAME=DIRECTORY.
        """
        settings = {"shaperouter": {"SHAPEROUTER_MODEL": model, **REPOSITORY}, **SETTINGS}
        ours = Path(os.path.relpath(KUBERNETES, self._directory))
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": "shaperouter",
            "resources": [str(ours / "base")],
            "components": [str(ours / "components" / name) for name in COMPONENTS],
            "configMapGenerator": [
                {
                    "name": name,
                    "namespace": "shaperouter",
                    "behavior": "merge",
                    "literals": [f"{variable}={value}" for variable, value in values.items()],
                }
                for name, values in settings.items()
            ],
        }
        path = self._directory / "kustomization.yaml"
        path.write_text(yaml.safe_dump(kustomization), encoding="utf-8")
        manifests = kustomize(self._directory)
        workloads = [
            Workload(manifest, manifests)
            for manifest in of_kind(manifests, "Deployment", "StatefulSet")
        ]
        return {workload.name: self._template(workload) for workload in workloads}

    def _template(self, workload: Workload) -> Template:
        arguments = [workload.command, *workload.arguments]
        environment = workload.environment
        for mount in workload.container["volumeMounts"]:
            if directory := self._directory_of(workload, mount["name"]):
                path, here = f"{mount['mountPath']}/", f"{directory}/"
                arguments = [each.replace(path, here) for each in arguments]
                environment = {k: v.replace(path, here) for k, v in environment.items()}
        return Template(
            arguments=tuple(arguments),
            environment=environment | SMALLER,
            sleep=workload.sleep,
            grace=workload.pod["terminationGracePeriodSeconds"],
        )

    def _directory_of(self, workload: Workload, name: str) -> Path | None:
        """Directory of a volume on this machine; None if the volume belongs to one pod."""
        [volume] = [each for each in workload.pod["volumes"] if each["name"] == name]
        if secret := volume.get("secret"):
            return self._volumes / str(secret["secretName"])
        if claim := volume.get("persistentVolumeClaim"):
            return self._volumes / str(claim["claimName"])
        return None

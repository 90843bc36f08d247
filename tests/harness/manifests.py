"""The Kubernetes manifests as built by kustomize."""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
import unittest.mock
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from harness.roles import options_of
from harness.tools import tool

KUBERNETES = Path(__file__).parents[2] / "deploy" / "kubernetes"
BASES = ("base", "gateway")
COMPONENTS = sorted(path.name for path in (KUBERNETES / "components").iterdir())
OVERLAYS = sorted(path.name for path in (KUBERNETES / "overlays").iterdir())
BUILDS = [*BASES, *(f"overlays/{name}" for name in OVERLAYS)]

Manifest = dict[str, Any]


class BuildError(Exception):
    """Kustomize failed to build."""


def kustomize(directory: Path) -> list[Manifest]:
    """Builds a kustomization.

    Raises:
        BuildError: The message is kustomize's.
    """
    command = [tool("kubectl"), "kustomize", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(done.stderr)
    # The loader written in C is ten times as fast.
    return list(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))


def combined(base: Path, components: Sequence[str]) -> list[Manifest]:
    """Builds an operator's kustomization: a base with components, in this order.

    Args:
        base: Directory of the kustomization that it starts from.
        components: Names.

    Raises:
        BuildError: The components do not fit together.
    """
    with tempfile.TemporaryDirectory() as directory:

        def relative(path: Path) -> str:
            return os.path.relpath(path, os.path.realpath(directory))

        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [relative(base)],
            "components": [relative(KUBERNETES / "components" / name) for name in components],
        }
        (Path(directory) / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return kustomize(Path(directory))


@functools.cache
def built(name: str) -> Sequence[Manifest]:
    """The manifests of a kustomization of this repository, by its path."""
    return kustomize(KUBERNETES / name)


def of_kind(manifests: Sequence[Manifest], *kinds: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


class Workload:
    """A Deployment or StatefulSet with its only container."""

    def __init__(self, manifest: Manifest, manifests: Sequence[Manifest]) -> None:
        self.name: str = manifest["metadata"]["name"]
        self.spec: Manifest = manifest["spec"]
        self.pod: Manifest = manifest["spec"]["template"]["spec"]
        self.labels: dict[str, str] = manifest["spec"]["template"]["metadata"]["labels"]
        # A patch for a container of another name adds a second one.
        [self.container] = self.pod["containers"]
        self.command, *self.arguments = self.container["args"]
        self._manifests = manifests

    @property
    def environment(self) -> dict[str, str]:
        """The container's variables, including those from ConfigMaps."""
        maps = {each["metadata"]["name"]: each for each in of_kind(self._manifests, "ConfigMap")}
        found: dict[str, str] = {}
        for source in self.container.get("envFrom", []):
            found |= maps[source["configMapRef"]["name"]]["data"]
        for variable in self.container.get("env", []):
            found[variable["name"]] = variable.get("value") or self._resource(variable["valueFrom"])
        return found

    @property
    def ports(self) -> dict[str, int]:
        return {port["name"]: port["containerPort"] for port in self.container["ports"]}

    @property
    def probes(self) -> dict[str, Manifest]:
        return {name: value for name, value in self.container.items() if name.endswith("Probe")}

    @property
    def options(self) -> dict[str, Any]:
        """The values of the command's options, as the program reads them in the container."""
        with unittest.mock.patch.dict(os.environ, self.environment):
            return options_of(self.command, self.arguments)

    def volume_at(self, path: Path) -> Manifest:
        """The volume on which a file or directory of the container lies.

        Raises:
            KeyError: It is on none.
        """
        for mount in self.container["volumeMounts"]:
            if path.is_relative_to(mount["mountPath"]):
                volumes = self.pod["volumes"] + [
                    {"name": claim["metadata"]["name"], "volumeClaimTemplate": claim}
                    for claim in self.spec.get("volumeClaimTemplates", [])
                ]
                [volume] = [each for each in volumes if each["name"] == mount["name"]]
                found: Manifest = volume
                return found
        raise KeyError(str(path))

    @property
    def writable(self) -> list[Path]:
        """The directories that the container can write to; its root is read-only."""
        mounts = self.container["volumeMounts"]
        return [Path(mount["mountPath"]) for mount in mounts if not mount.get("readOnly")]

    @property
    def sleep(self) -> int:
        """Seconds between the decision to stop the pod and SIGTERM."""
        hook = self.container.get("lifecycle", {}).get("preStop", {"sleep": {"seconds": 0}})
        return int(hook["sleep"]["seconds"])

    def _resource(self, source: Manifest) -> str:
        kind, _, name = source["resourceFieldRef"]["resource"].partition(".")
        return str(self.container["resources"][kind][name])


def workloads(name: str) -> Iterator[Workload]:
    """The workloads of a kustomization of this repository, by its path."""
    return workloads_of(built(name))


def workloads_of(manifests: Sequence[Manifest]) -> Iterator[Workload]:
    """The workloads among manifests."""
    for manifest in of_kind(manifests, "Deployment", "StatefulSet"):
        yield Workload(manifest, manifests)

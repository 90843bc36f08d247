"""The Kubernetes manifests, as kustomize builds them."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from harness.tools import tool

KUBERNETES = Path(__file__).parents[2] / "deploy" / "kubernetes"
OVERLAYS = sorted(path.name for path in (KUBERNETES / "overlays").iterdir())
BUILDS = ["base", *(f"overlays/{name}" for name in OVERLAYS)]

Manifest = dict[str, Any]


def kustomize(directory: Path) -> list[Manifest]:
    """Builds a kustomization; an error of it is the test's."""
    command = [tool("kubectl"), "kustomize", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # The loader that is not written in Python: ten times as fast.
    return list(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))


@functools.cache
def built(name: str) -> Sequence[Manifest]:
    """What a kustomization of ours builds, by its path."""
    return kustomize(KUBERNETES / name)


def of_kind(manifests: Sequence[Manifest], *kinds: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


class Workload:
    """A Deployment or StatefulSet, and its one container."""

    def __init__(self, manifest: Manifest, manifests: Sequence[Manifest]) -> None:
        self.name: str = manifest["metadata"]["name"]
        self.spec: Manifest = manifest["spec"]
        self.pod: Manifest = manifest["spec"]["template"]["spec"]
        self.labels: dict[str, str] = manifest["spec"]["template"]["metadata"]["labels"]
        [self.container] = self.pod["containers"]
        self.command, *self.arguments = self.container["args"]
        self._manifests = manifests

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the container, those from ConfigMaps included."""
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
    def writable(self) -> list[Path]:
        """Directories that the container can write to: its root is read-only."""
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
    """The workloads of a kustomization."""
    manifests = built(name)
    for manifest in of_kind(manifests, "Deployment", "StatefulSet"):
        yield Workload(manifest, manifests)

"""All that runs in the rehearsal: routers, workers, their secrets, users, and Prometheus."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families
from safetensors.numpy import load_file, save_file

from cluster import dns, prometheus
from cluster.doors import Doors
from cluster.manifests import Kustomization
from cluster.network import Network
from cluster.pods import METRICS_PORT, Pod
from cluster.prometheus import RULES, Prometheus, quickened
from cluster.version_before import VersionBefore
from cluster.volumes import Secret
from cluster.workloads import Deployment, StatefulSet, at_once
from harness.certificates import Authority
from harness.service import GOLDENS
from harness.waiting import wait_until
from shaperouter import Client

# Names of workloads, and of the headless Services in front of them.
ROUTERS, WORKERS = "shaperouter-router", "shaperouter-worker"
CALLERS = "callers"

# Clients with tokens; the operator may warm graphs.
USERS, OPERATOR = ("web", "batch"), "operator"

ROUTER_PORT, WORKER_PORT = 50051, 50052

# What is served: tiny, and without an end token.
CHECKPOINT = GOLDENS / "gpt2-untied"
NAME = "small"
MODEL = f"{NAME}=/models/{NAME}"

# What nobody has loaded, until a request names it.
RARE, RARE_CHECKPOINT = "rare", GOLDENS / "llama"

# How many times faster than a real one the day passes for Prometheus' rules.
QUICKER = 10


class Production:
    """A cluster and its users.

    Attributes:
        kustomization: The operator's.
        routers: The Deployment.
        workers: The StatefulSet.
        prometheus: What watches it.
    """

    def __init__(self, directory: Path) -> None:
        """Prepares it; `running` starts it.

        Args:
            directory: For everything that is written, which is made.
        """
        self._directory = directory
        volumes = directory / "volumes"
        self._models = volumes / "shaperouter-models"
        shutil.copytree(CHECKPOINT, self._models / NAME)
        shutil.copytree(RARE_CHECKPOINT, self._models / RARE)
        (volumes / "shaperouter-cache").mkdir(mode=0o700)
        self._outside = Authority(directory / "authorities" / "outside")
        self._inside = Authority(directory / "authorities" / "inside")
        secrets = ("shaperouter-tls", "shaperouter-router-tls", "shaperouter-worker-tls")
        self._tls = {name: Secret(volumes / name) for name in secrets}
        self._issue(self._inside.ca.read_bytes())
        clients = (*USERS, OPERATOR)
        entries, tokens = zip(*map(_client, clients), strict=True)
        self._tokens = dict(zip(clients, tokens, strict=True))
        # The last is the operator's.
        file = "".join([*entries, "operator = true\n"])
        Secret(volumes / "shaperouter-clients").write({"clients.toml": file.encode()})
        self.kustomization = Kustomization(directory / "kustomization", volumes)
        templates = self.kustomization.apply(MODEL)
        self.network = Network()
        self._names = dns.Names()
        self._callers: list[str] = []
        logs = directory / "logs"
        logs.mkdir()
        shared = {"network": self.network, "names": self._names, "logs": logs}
        self.routers = Deployment(ROUTERS, templates[ROUTERS], **shared)
        self.workers = StatefulSet(WORKERS, templates[WORKERS], **shared)
        self.prometheus: Prometheus

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Prometheus and DNS run inside of the context. Pods and users end with this process."""
        host = self.network.add("prometheus")
        scrapes = [_scraped("shaperouter", ROUTERS, WORKERS), _scraped("callers", CALLERS)]
        rules = quickened(yaml.safe_load(RULES.read_text(encoding="utf-8")), QUICKER)
        with (
            dns.serving(self._names),
            prometheus.running(
                self._directory / "prometheus",
                scrapes,
                rules,
                interval=1,
                host=host.address,
                enter=host.command,
            ) as self.prometheus,
        ):
            yield

    def begin_calls(self, version: VersionBefore | None = None) -> None:
        """Starts users.

        Args:
            version: The version of their client; this one by default.
        """
        name = f"{CALLERS}-{len(self._callers)}"
        host = self.network.add(name)
        search_path = os.environ.get("PYTHONPATH", "")
        if version is not None:
            search_path = os.pathsep.join([version.search_path, search_path])
        tokens = self._directory / "tokens.txt"
        tokens.write_text("\n".join(self._tokens[name] for name in USERS), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "cluster.callers",
            f"--address={ROUTERS}:{ROUTER_PORT}",
            f"--ca={self._outside.ca}",
            f"--metrics-port={METRICS_PORT}",
            f"--tokens={tokens}",
        ]
        with (self._directory / "logs" / f"{name}.log").open("wb") as log:
            subprocess.Popen(
                host.command(command),
                env={**os.environ, "PYTHONPATH": search_path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._callers.append(host.address)
        self._names.set(CALLERS, self._callers)

    def operator(self) -> Client:
        """The service, as its operator calls it."""
        address, token = f"{ROUTERS}:{ROUTER_PORT}", self._tokens[OPERATOR]
        return Client(address, ca=self._outside.ca, token=token)

    def doors(self) -> list[Doors]:
        """The doors of each router."""
        token = self._tokens[USERS[0]]
        return [
            Doors(address=pod.address, name=ROUTERS, ca=self._outside.ca, token=token)
            for pod in self.routers.pods
        ]

    def roll(self, model: str) -> None:
        """Applies the kustomization with a model: routers and workers are replaced, side by side.

        Raises:
            PodEndedError: A new one has ended, and is left as it is.
        """
        templates = self.kustomization.apply(model)
        at_once(
            lambda: self.workers.roll(templates[WORKERS]),
            lambda: self.routers.roll(templates[ROUTERS]),
        )

    def busy_worker(self) -> Pod:
        """A worker that has just said that requests run on it."""
        found: list[Pod] = []

        def one_is() -> bool:
            # Requests take a tenth of a second, so a longer interval would show old states.
            found.extend(itertools.islice(filter(_active_slots, self.workers.pods), 1))
            return bool(found)

        wait_until(one_is)
        return found[0]

    # Certificates.

    def rotate_certificates(self) -> None:
        """Renews what callers see, and replaces the authority inside of the cluster.

        In an order in which everybody trusts every certificate that they see: first both
        authorities are trusted, then all get certificates of the new one, then the old one is
        removed.
        """
        old, new = self._inside, Authority(self._directory / "authorities" / "inside-renewed")
        both = old.ca.read_bytes() + new.ca.read_bytes()
        self._issue(both)
        self._inside = new
        self._issue(both)
        self._issue(new.ca.read_bytes())

    def _issue(self, trusted_inside: bytes) -> None:
        """Replaces all certificates."""
        for name, authority, host in (
            ("shaperouter-tls", self._outside, ROUTERS),
            ("shaperouter-router-tls", self._inside, ROUTERS),
            ("shaperouter-worker-tls", self._inside, WORKERS),
        ):
            cert, key = authority.issue(name, host=host)
            ca = self._outside.ca.read_bytes() if authority is self._outside else trusted_inside
            self._tls[name].write(
                {"tls.crt": cert.read_bytes(), "tls.key": key.read_bytes(), "ca.crt": ca}
            )

    def served_certificates(self) -> dict[str, bytes]:
        """The certificate that each pod shows to a new connection, by the pod's name.

        Raises:
            ssl.SSLError: A certificate is not from an authority that is trusted now.
        """
        shown = {
            pod.name: _shown(pod, ROUTER_PORT, ROUTERS, self._outside) for pod in self.routers.pods
        }
        return shown | {
            pod.name: _shown(pod, WORKER_PORT, WORKERS, self._inside) for pod in self.workers.pods
        }

    # Checkpoints.

    def damage_checkpoint(self) -> str:
        """Puts an incomplete checkpoint beside the good one, and names it as a model."""
        damaged = self._models / f"{NAME}-v2"
        shutil.copytree(CHECKPOINT, damaged)
        shard = max(damaged.glob("*.safetensors"), key=lambda path: path.stat().st_size)
        shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2])
        return f"{NAME}=/models/{damaged.name}"

    def new_checkpoint(self) -> str:
        """Puts a checkpoint with other weights beside the good one; returns its location."""
        new = self._models / f"{NAME}-v3"
        shutil.copytree(CHECKPOINT, new)
        (file,) = new.glob("model-00003-of-*.safetensors")
        # Every token is another one.
        (name, weights), *_ = load_file(file).items()
        save_file({name: weights[::-1].copy()}, file, {"format": "pt"})
        return new.name


def _scraped(job: str, *services: str) -> dict[str, Any]:
    """A job that finds what it scrapes by DNS, as it finds pods by a headless Service."""
    pods = {"names": list(services), "type": "A", "port": METRICS_PORT, "refresh_interval": "1s"}
    return {"job_name": job, "dns_sd_configs": [pods]}


def _client(name: str) -> tuple[str, str]:
    """Draws a token as operators do; returns the entry for the file, and the token."""
    command = [sys.executable, "-m", "shaperouter_service", "token", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stderr, done.stdout.strip()


def _active_slots(pod: Pod) -> float:
    with urllib.request.urlopen(f"http://{pod.address}:{METRICS_PORT}/metrics", timeout=5) as page:
        text = page.read().decode()
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "shaperouter_slots" and sample.labels["state"] == "active"
    )


def _shown(pod: Pod, port: int, name: str, authority: Authority) -> bytes:
    context = ssl.create_default_context(cafile=authority.ca)
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(*authority.issue("looker", host=name))
    with (
        socket.create_connection((pod.address, port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=name) as connection,
    ):
        return connection.getpeercert(binary_form=True) or b""

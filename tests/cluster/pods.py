"""Pods: one process each, on a host of its own, kept as a kubelet keeps it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cluster.manifests import Template
from cluster.network import Network
from harness.waiting import wait_until

HEALTH_PORT, METRICS_PORT = 9465, 9464

# Seconds a pod has to get ready, compilations on a cold cache included.
START = 180.0

# What of our own environment a process needs to run at all.
_INHERITED = ("PATH", "PYTHONPATH", "HOME", "TMPDIR", "LANG")


class PodEndedError(Exception):
    """A pod has ended before it was ready."""


class Pod:
    """A router or a worker.

    Attributes:
        name: Name of the pod and of its host.
        address: Its IP address.
    """

    def __init__(self, name: str, template: Template, network: Network, logs: Path) -> None:
        """Starts it.

        Args:
            name: Name of the pod.
            template: What it runs.
            network: Where it gets a host of its own.
            logs: Directory of logs; all processes of one name share a file.
        """
        self.name = name
        self._template = template
        self._host = network.add(name)
        self.address = self._host.address
        self._log = logs / f"{name}.log"
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        program = [sys.executable, "-m", "shaperouter_service", *self._template.arguments]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._host.command(program),
                env=inherited | self._template.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is ours to deal with.
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        """The logs of all processes of its name."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def exit_code(self) -> int | None:
        """How its process ended; None while it runs."""
        return self._process.poll()

    @property
    def ready(self) -> bool:
        """Whether it says so to the probe of a kubelet."""
        with grpc.insecure_channel(f"{self.address}:{HEALTH_PORT}") as channel:
            request = health_pb2.HealthCheckRequest(service="readiness")
            try:
                answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=2)
            except grpc.RpcError:
                return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def wait_until_ready(self) -> None:
        """Waits for it.

        Raises:
            PodEndedError: Its process has ended.
            TimeoutError: It takes too long.
        """

        def ready_or_ended() -> bool:
            if self.exit_code is not None:
                raise PodEndedError(f"{self.name} ended with exit code {self.exit_code}")
            return self.ready

        try:
            wait_until(ready_or_ended, timeout=START, pause=0.2)
        except TimeoutError:
            raise TimeoutError(f"{self.name} was not ready within {START:g} s") from None

    def restart(self) -> None:
        """Restarts the process in the same pod, as a kubelet does."""
        self._process = self._start()

    def end(self) -> None:
        """Ends it as Kubernetes ends a pod: a sleep, SIGTERM, and SIGKILL if that fails."""
        # The hook that the manifests have before SIGTERM; it does nothing but sleep.
        time.sleep(self._template.sleep)
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(self._template.grace - self._template.sleep)
        self._host.remove()

    def kill(self) -> None:
        """Kills its process without warning, as if the node died or ran out of memory."""
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """Stops its process where it is; requests may still be sent to it."""
        self._process.send_signal(signal.SIGSTOP)

    def remove(self) -> None:
        """Removes it, whatever it is doing."""
        self.kill()
        self._host.remove()

    def cut(self) -> None:
        """Takes it off the network, without notice to either side."""
        self._host.cut()

    def mend(self) -> None:
        """Puts it back on the network."""
        self._host.mend()

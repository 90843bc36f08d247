"""Workloads: pods of a kind, rolled and scaled as Kubernetes does it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from cluster.dns import Names
from cluster.manifests import Template
from cluster.network import Network
from cluster.pods import Pod


def at_once(*acts: Callable[[], None]) -> None:
    """Calls functions in parallel, and raises the first exception of any of them."""
    failures: list[Exception] = []

    def run(act: Callable[[], None]) -> None:
        try:
            act()
        # Raised again in the caller's thread.
        except Exception as error:
            failures.append(error)

    # Daemons, so that an interruption of the day does not wait for them.
    threads = [threading.Thread(target=run, args=(act,), daemon=True) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


class _Workload:
    """Pods of a kind, and the headless Service by whose name they are found.

    Attributes:
        pods: The pods, in order of their names.
    """

    def __init__(
        self, name: str, template: Template, *, network: Network, names: Names, logs: Path
    ) -> None:
        self.name = name
        self.pods: list[Pod] = []
        self._template = template
        self._network = network
        self._names = names
        self._logs = logs

    def _add(self, name: str) -> Pod:
        pod = Pod(name, self._template, self._network, self._logs)
        self.pods = sorted([*self.pods, pod], key=lambda each: each.name)
        return pod

    def _publish(self, pods: Iterable[Pod]) -> None:
        self._names.set(self.name, [pod.address for pod in pods])


class StatefulSet(_Workload):
    """Workers: each has a name that its next life takes over, and addresses before it is ready."""

    def scale(self, count: int) -> None:
        """Starts pods, or ends those with the highest numbers; returns when it is done."""
        new = [self._start(number) for number in range(len(self.pods), count)]
        at_once(*(pod.wait_until_ready for pod in new))
        at_once(*(pod.end for pod in self.pods[count:]))
        self.pods = self.pods[:count]
        self._publish(self.pods)

    def roll(self, template: Template) -> None:
        """Gives each pod, the last one first, a successor that runs this, once the one before is
        ready.

        Raises:
            PodEndedError: A successor has ended. It is left as it is, and so are those before it.
        """
        self._template = template
        for number in reversed(range(len(self.pods))):
            self._replace(number)

    def roll_back(self, template: Template) -> None:
        """Replaces the pods that are not ready, by ones that run this.

        The first of them by hand: a StatefulSet waits for a broken pod to get ready.
        """
        self._template = template
        for number, pod in enumerate(self.pods):
            if not pod.ready:
                self._replace(number)

    def _replace(self, number: int) -> None:
        pod = self.pods[number]
        if pod.exit_code is None:
            pod.end()
        else:
            pod.remove()
        self.pods.remove(pod)
        self._start(number).wait_until_ready()

    def _start(self, number: int) -> Pod:
        pod = self._add(f"{self.name}-{number}")
        self._publish(self.pods)
        return pod


class Deployment(_Workload):
    """Routers: each has a name of its own, and addresses while it is ready and not on its way."""

    def __init__(
        self, name: str, template: Template, *, network: Network, names: Names, logs: Path
    ) -> None:
        super().__init__(name, template, network=network, names=names, logs=logs)
        self._numbers = itertools.count()

    def scale(self, count: int) -> None:
        """Starts pods; returns when they are ready."""
        new = [self._add(f"{self.name}-{next(self._numbers)}") for _ in range(count)]
        at_once(*(pod.wait_until_ready for pod in new))
        self._publish(self.pods)

    def roll(self, template: Template) -> None:
        """Gives each pod a successor with this template, which is ready before the old pod ends."""
        self._template = template
        for pod in list(self.pods):
            self.scale(1)
            self.pods.remove(pod)
            self._publish(self.pods)
            pod.end()

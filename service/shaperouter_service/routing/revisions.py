"""The revisions to which a router sends requests, by the names that requests use."""

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from shaperouter_service.routing.deployments import Deployment, Orders, Revision, newest


class Revisions:
    """Follows deployments, and counts the requests that use each revision.

    The router learns of a deployment (`tell`), prepares for its revisions, and then follows it.
    Only the event loop may use it.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Starts with the models that workers are started with.

        Args:
            names: Their names.
        """
        self._started_with = {name: Revision(model=name, digest="") for name in names}
        self._told: dict[str, Deployment] = {}
        self._followed: dict[str, Deployment] = {}
        self._uses: Counter[str] = Counter()
        # Revisions in no deployment any more that requests may still use.
        self._retired: dict[str, Revision] = {}
        self._on_release: Callable[[], None] = lambda: None
        self.names: Sequence[str] = tuple(sorted(self._started_with))

    def on_release(self, callback: Callable[[], None]) -> None:
        """Sets what is called when the last request that used a retired revision has ended."""
        self._on_release = callback

    def tell(self, deployments: Iterable[Deployment]) -> None:
        """Takes deployments; for each name, the newest one counts."""
        self._told = newest(self._told, deployments)

    def told(self, name: str) -> Deployment | None:
        """The newest deployment of a name."""
        return self._told.get(name)

    def pending(self) -> list[Deployment]:
        """The newest deployments that are not followed yet."""
        return [each for name, each in self._told.items() if self._followed.get(name) != each]

    def follow(self, deployment: Deployment) -> None:
        """Sends further requests by a deployment; the router must be prepared for its revisions."""
        before = self.deployment(deployment.name).revisions
        self._followed[deployment.name] = deployment
        current = {revision.model for revision in deployment.revisions}
        self._retired |= {each.model: each for each in before if each.model not in current}
        for model in current:
            self._retired.pop(model, None)
        self._forget_unused()
        names = self._started_with.keys() | self._followed.keys()
        self.names = tuple(sorted(name for name in names if self.deployment(name).serving))

    def deployment(self, name: str) -> Deployment:
        """The followed deployment of a name; version 0 has the model of the start."""
        if name in self._followed:
            return self._followed[name]
        started = self._started_with.get(name)
        return Deployment(name=name, version=0, revisions=[] if started is None else [started])

    def is_known(self, model: str) -> bool:
        """Whether this is the worker's name of a revision in a deployment that is followed."""
        return any(
            model == revision.model
            for deployment in self._followed.values()
            for revision in deployment.revisions
        )

    def main(self, name: str) -> str:
        """Returns the worker's name of the revision with the largest share, or the name itself.

        A worker's name is returned unchanged.
        """
        serving = self.deployment(name).serving
        return max(serving, key=lambda revision: revision.share).model if serving else name

    def pick(self, name: str) -> str:
        """Picks a revision for a request by the shares; returns the worker's name of the revision.

        A worker's name is returned unchanged.
        """
        serving = self.deployment(name).serving
        if len(serving) < 2:
            return serving[0].model if serving else name
        shares = [revision.share for revision in serving]
        return random.choices(serving, shares)[0].model  # noqa: S311 (no secret)

    @contextlib.contextmanager
    def using(self, name: str) -> Iterator[str]:
        """Picks a revision for a request, and keeps it loaded inside the context.

        Yields:
            The worker's name of the revision.
        """
        model = self.pick(name)
        self._uses[model] += 1
        try:
            yield model
        finally:
            self._uses[model] -= 1
            if not self._uses[model]:
                del self._uses[model]
                if model in self._retired:
                    self._forget_unused()
                    self._on_release()

    def orders(self, router: str) -> Orders:
        """The router's orders for workers; `router` identifies its process."""
        return Orders(
            router=router,
            deployments=list(self._followed.values()),
            held=list(self._retired.values()),
        )

    def deployments(self) -> list[Deployment]:
        """The deployments that are followed."""
        return list(self._followed.values())

    def revisions(self) -> list[Revision]:
        """All revisions that requests use or may get."""
        followed = [each for deployed in self._followed.values() for each in deployed.revisions]
        started = [each for name, each in self._started_with.items() if name not in self._followed]
        return [*followed, *started, *self._retired.values()]

    def _forget_unused(self) -> None:
        self._retired = {
            model: revision for model, revision in self._retired.items() if self._uses[model]
        }

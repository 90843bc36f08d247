"""The revisions to which a router sends requests, by the names that requests use."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from shaperouter_service.routing.deployments import (
    Deployment,
    Orders,
    Revision,
    Target,
    newest,
)
from shaperouter_service.routing.shares import by_share


class Revisions:
    """Follows deployments, and counts the requests that use each revision.

    The router learns of a deployment (`tell`), prepares for its revisions, and then follows it.
    Only the event loop may use it.

    Attributes:
        names: The names of the models, in order.
        lasting: Those that are not loaded on demand.
        aliases: Where requests to further names go: to models, with their shares.
    """

    def __init__(
        self,
        names: Iterable[str],
        aliases: Mapping[str, Sequence[Target]] = MappingProxyType({}),
    ) -> None:
        """Starts with the models that workers are started with.

        Args:
            names: Their names.
            aliases: The aliases that the router is started with.
        """
        self._started_with = {name: Revision(model=name, digest="") for name in names}
        self._started_aliases = {
            name: Deployment(name=name, version=0, targets=targets)
            for name, targets in aliases.items()
        }
        self._told: dict[str, Deployment] = {}
        self._followed: dict[str, Deployment] = {}
        self._uses: Counter[str] = Counter()
        # Revisions in no deployment any more that requests may still use.
        self._retired: dict[str, Revision] = {}
        self._on_release: list[Callable[[], None]] = []
        self.names: Sequence[str] = ()
        self.lasting: Sequence[str] = ()
        self.aliases: Mapping[str, Sequence[Target]] = {}
        self._name()

    def on_release(self, callback: Callable[[], None]) -> None:
        """Adds what is called when no request can use a revision any more.

        That is when a deployment that drops it is followed, or when its last request has ended.
        """
        self._on_release.append(callback)

    def tell(self, deployments: Iterable[Deployment]) -> None:
        """Takes deployments; for each name, the newest one counts."""
        self._told = newest(self._told, deployments)

    def told(self, name: str) -> Deployment | None:
        """The newest deployment of a name."""
        return self._told.get(name)

    def all_told(self) -> list[Deployment]:
        """The newest deployment of each name, whether or not it is followed yet."""
        return list(self._told.values())

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
        self._name()
        self._release_unused()

    def deployment(self, name: str) -> Deployment:
        """The followed deployment of a name; version 0 has the model, or alias, of the start."""
        if name in self._followed:
            return self._followed[name]
        if name in self._started_aliases:
            return self._started_aliases[name]
        started = self._started_with.get(name)
        if started is None:
            return Deployment(name=name, version=0, on_demand=True)
        return Deployment(name=name, version=0, revisions=[started])

    def is_known(self, model: str) -> bool:
        """Whether this is the worker's name of a revision in a deployment that is followed."""
        return any(
            model == revision.model
            for deployment in self._followed.values()
            for revision in deployment.revisions
        )

    def main(self, name: str) -> str:
        """Returns the worker's name of the revision with the largest share, or the name itself.

        That of an alias is that of its model with the largest share. A worker's name is returned
        unchanged.
        """
        if targets := self.aliases.get(name):
            name = max(targets, key=lambda target: target.share).model
        serving = self.deployment(name).serving
        return max(serving, key=lambda revision: revision.share).model if serving else name

    def targets(self, name: str) -> list[Target]:
        """Where the requests to a name go: an alias to models, a model to its revisions."""
        serving = self.deployment(name).serving
        return [
            *self.aliases.get(name, ()),
            *(Target(model=revision.model, share=revision.share) for revision in serving),
        ]

    def pick(
        self, name: str, request_id: str, can_serve: Callable[[str], bool] = lambda _: True
    ) -> str:
        """Picks the target of a request by the shares; a name without targets is its own.

        Args:
            name: A name; see `targets`.
            request_id: Id of the request, which decides.
            can_serve: Whether a target can serve now. If some can, the others get no requests.
        """
        targets = self.targets(name)
        if len(targets) > 1:
            targets = [each for each in targets if can_serve(each.model)] or targets
        # With the name, because the choice of a model must not decide the choice of its revision.
        return by_share(targets, f"{name} {request_id}").model if targets else name

    @contextlib.contextmanager
    def using(self, model: str) -> Iterator[None]:
        """Keeps a revision loaded inside the context; `model` is the worker's name of it."""
        self._uses[model] += 1
        try:
            yield
        finally:
            self._uses[model] -= 1
            if not self._uses[model]:
                del self._uses[model]
                if model in self._retired:
                    self._release_unused()

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

    def is_used(self, model: str) -> bool:
        """Whether requests of this router use a revision; `model` is the worker's name of it."""
        return self._uses[model] > 0

    def _name(self) -> None:
        names = self._started_with.keys() | self._started_aliases.keys() | self._followed.keys()
        deployments = [self.deployment(name) for name in sorted(names)]
        served = [each for each in deployments if each.serving]
        self.names = tuple(each.name for each in served)
        self.lasting = tuple(each.name for each in served if not each.on_demand)
        self.aliases = {each.name: each.targets for each in deployments if each.targets}

    def _release_unused(self) -> None:
        unused = [model for model in self._retired if not self._uses[model]]
        for model in unused:
            del self._retired[model]
        if unused:
            for callback in self._on_release:
                callback()

"""The catalog: which worker has which model, which graphs, and how busy it is.

One owner of that truth. It is filled from the workers' snapshots alone, so a router that starts
anew learns everything again.
"""

from collections.abc import Sequence
from typing import NamedTuple

from shaperouter.v1 import graph_pb2, model_pb2, worker_pb2
from shaperouter_service.errors import InvalidRequestError, UnknownModelError, Violation


class WorkerId(NamedTuple):
    """One life of a worker: while one process ends, its successor may live beside it.

    Attributes:
        name: What both are called.
        incarnation: What tells them apart.
    """

    name: str
    incarnation: str

    @classmethod
    def of(cls, snapshot: worker_pb2.WatchResponse) -> "WorkerId":
        """Whose snapshot it is."""
        return cls(snapshot.worker, snapshot.incarnation)


class Catalog:
    """The newest snapshot of every worker that is connected.

    Belongs to one thread, the event loop's.
    """

    def __init__(self, models: Sequence[str]) -> None:
        """Starts with no worker.

        Args:
            models: Names of the models that workers are expected to have.
        """
        self.model_names = tuple(sorted(models))
        self._workers: dict[WorkerId, worker_pb2.WatchResponse] = {}
        # Kept when the last worker goes: a model's limits outlive a restart.
        self._models: dict[str, model_pb2.Model] = {}

    def update(self, snapshot: worker_pb2.WatchResponse) -> None:
        """Takes in what a worker says of itself."""
        self._workers[WorkerId.of(snapshot)] = snapshot
        for model in snapshot.models:
            self._models[model.name] = model

    def lose(self, worker: WorkerId) -> None:
        """Forgets a worker that is not connected any more."""
        self._workers.pop(worker, None)

    def resolve(self, name: str) -> str:
        """Returns the model a request means: by name, or the only one.

        Raises:
            UnknownModelError: There is no such model.
            InvalidRequestError: None was named, and there are several.
        """
        if not name:
            if len(self.model_names) == 1:
                return self.model_names[0]
            known = ", ".join(self.model_names)
            raise InvalidRequestError(
                Violation(field="model", description=f"must be set; this service has {known}")
            )
        if name not in self.model_names:
            raise UnknownModelError(name, list(self.model_names))
        return name

    def model(self, name: str) -> model_pb2.Model | None:
        """Describes a model, with the number of workers ready for it; None before it is known."""
        if name not in self._models:
            return None
        model = model_pb2.Model()
        model.CopyFrom(self._models[name])
        model.ready_workers = len(self.workers(name))
        return model

    def workers(self, model: str) -> list[WorkerId]:
        """Names the connected workers that have a model."""
        return [
            worker
            for worker, snapshot in self._workers.items()
            if any(served.name == model for served in snapshot.models)
        ]

    def snapshots(self) -> list[worker_pb2.WatchResponse]:
        """The snapshots of the connected workers."""
        return list(self._workers.values())

    def graphs(self) -> list[graph_pb2.Graph]:
        """The graphs of the connected workers that somebody has asked for."""
        return [graph for snapshot in self._workers.values() for graph in snapshot.graphs]

    @property
    def ready(self) -> bool:
        """Whether every model has a worker."""
        return all(self.workers(name) for name in self.model_names)

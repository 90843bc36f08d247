"""The last losses of workers, for people who look into them."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from shaperouter_service.fleet.link import Loss
from shaperouter_service.routing.snapshots import WorkerId

# Losses that are kept.
MAX_LOSSES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLoss:
    """The end of a worker's process.

    Attributes:
        worker: The process.
        loss: How it ended.
        at: When the router noticed, in seconds of Unix time.
    """

    worker: WorkerId
    loss: Loss
    at: float


class Losses:
    """The last losses. Only the event loop may use it."""

    def __init__(self) -> None:
        """Starts without losses."""
        self._losses: deque[WorkerLoss] = deque(maxlen=MAX_LOSSES)

    def add(self, worker: WorkerId, loss: Loss) -> None:
        """Adds a loss that has just been noticed."""
        self._losses.append(WorkerLoss(worker=worker, loss=loss, at=time.time()))

    def all(self) -> Sequence[WorkerLoss]:
        """The kept losses, oldest first."""
        return tuple(self._losses)

    def of(self, worker: WorkerId) -> Loss | None:
        """How a process was last lost; None if it was not, or too many were lost since."""
        losses = (each.loss for each in reversed(self._losses) if each.worker == worker)
        return next(losses, None)

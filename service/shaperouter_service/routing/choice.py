"""The choice among options: the worker that ends a request soonest."""

import abc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from shaperouter_service.routing.ladder import OverLadderError
from shaperouter_service.routing.rendezvous import named
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.views import WorkerView

T = TypeVar("T")

# Options whose expected end is within this fraction of the soonest count as equal, because
# estimates are no more precise. Among equal options, requests of one shape go to one worker, so
# that it compiles for them.
EQUAL_WITHIN = 0.1

# Maximum options in an explanation.
MAX_EXPLAINED_OPTIONS = 16


@dataclass(frozen=True, kw_only=True)
class WorkerOption(abc.ABC):
    """An option to serve a request on a worker, with expected times in seconds.

    Attributes:
        worker: Name of the worker.
        tight: The smallest graph that covers the request alone.
        queue_seconds: Waiting for earlier requests.
        stall_seconds: Additional waiting for graphs.
        informed: Whether all times are based on measurements of the worker.
        saved_seconds: Time that the worker saves because it has cached a prefix.
    """

    worker: str
    tight: Signature
    queue_seconds: float
    stall_seconds: float
    informed: bool
    saved_seconds: float = 0.0

    @property
    @abc.abstractmethod
    def graphs(self) -> Sequence[Signature]:
        """The graphs, in the order of their use."""

    @property
    @abc.abstractmethod
    def device_seconds(self) -> float:
        """Seconds of the request's own work."""

    @property
    @abc.abstractmethod
    def queue(self) -> tuple[str, str, int]:
        """The queue in which it waits: worker, model and, if it has lanes, beam width."""

    @property
    def total_seconds(self) -> float:
        """Seconds until the end."""
        return self.queue_seconds + self.stall_seconds + self.device_seconds

    def __str__(self) -> str:
        """The short form for logs."""
        graphs = ", ".join(map(str, self.graphs))
        parts = [f"{self.worker}: {graphs}, {self.total_seconds:.3g} s"]
        if self.stall_seconds:
            parts.append(f"{self.stall_seconds:.3g} s waiting for a graph")
        if self.queue_seconds:
            parts.append(f"{self.queue_seconds:.3g} s in the queue")
        return ", ".join(parts)


AnyOption = TypeVar("AnyOption", bound=WorkerOption)
AnyOption_co = TypeVar("AnyOption_co", bound=WorkerOption, covariant=True)


@dataclass(frozen=True, kw_only=True)
class Decision(Generic[AnyOption_co]):
    """The options for a request, best first."""

    options: tuple[AnyOption_co, ...]

    @property
    def taken(self) -> AnyOption_co:
        """The best option, which is taken."""
        return self.options[0]


class NoOption:
    """The answer when no worker can serve a request."""


NO_OPTION: Final = NoOption()


def options_of(
    workers: Iterable[WorkerView], options: Callable[[WorkerView], Iterable[T]]
) -> list[T]:
    """The options on all workers whose ladders are long enough for a request.

    Workers may hold a model with other limits: a pool of its own settings, or another version of
    its files during a rollout.

    Args:
        workers: The workers that have the request's model.
        options: Returns a worker's options.

    Raises:
        OverLadderError: The ladders of all of them are too short.
    """
    found: list[T] = []
    over: OverLadderError | None = None
    for worker in workers:
        try:
            found += options(worker)
        except OverLadderError as error:
            over = error
    if over is not None and not found:
        raise over
    return found


def choose(options: Iterable[AnyOption]) -> Decision[AnyOption] | NoOption:
    """Finds the option that ends soonest. Equal inputs give equal decisions."""
    ranked = sorted(
        options, key=lambda option: (option.total_seconds, option.worker, option.graphs)
    )
    if not ranked:
        return NO_OPTION
    limit = (1 + EQUAL_WITHIN) * ranked[0].total_seconds
    as_good = [option for option in ranked if option.total_seconds <= limit]
    if any(option.saved_seconds for option in as_good):
        # What is saved can be little beside a long answer, but it is known for certain.
        least = min(map(_wait, as_good))
        as_good = [option for option in as_good if _wait(option) == least]
    name = named(ranked[0].tight, sorted({option.worker for option in as_good}))
    taken = next(option for option in ranked if option.worker == name)
    others = [option for option in ranked if option is not taken]
    return Decision(options=(taken, *others[: MAX_EXPLAINED_OPTIONS - 1]))


def _wait(option: WorkerOption) -> float:
    """Seconds of waiting on a worker, less the time that its cache saves."""
    return option.queue_seconds + option.stall_seconds - option.saved_seconds

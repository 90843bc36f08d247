"""A call of a model that answers once, on a worker, from its arrival to its end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from shaperouter_service.errors import ServiceError
from shaperouter_service.functions import Part, merge
from shaperouter_service.generation.run_events import GraphUse
from shaperouter_service.graphs import Graph
from shaperouter_service.inference.calls import CallTimings, Tensors, WorkerResult
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.tensors.checking import Sizes
from shaperouter_service.tensors.specs import CallSpec


@dataclass(frozen=True)
class Begun:
    """A suspect is about to be computed."""


@dataclass(frozen=True)
class CallFailed:
    """The call has failed."""

    error: ServiceError


# `Begun` may come once, before the others; one of the others comes last.
CallEvent: TypeAlias = Begun | CallFailed | WorkerResult


@dataclass(kw_only=True, eq=False)
class Call:
    """One call. Once it is submitted, only the device thread may change it, except `cancelled`.

    Attributes:
        request_id: Id of the request, for logs.
        client: The client, for fairness between waiting clients.
        inputs: The inputs, which fit the model's `CallSpec`.
        sizes: Its sizes.
        common: Digest of the inputs that other calls must have, too, to be joined with it.
        outputs: Names of the outputs to return.
        emit: Takes its events; called from the device thread.
        arrived: When it came to the worker, in seconds on the monotonic clock.
        suspect: Whether workers died with it, so that it is computed alone.
        cancelled: Set from any thread; it is dropped unless it is being computed.
        repeated: Whether a batch with it has failed, so that it is computed again, alone.
        taken: Number of its rows that were computed.
    """

    request_id: str
    client: str
    inputs: Tensors = field(repr=False)
    sizes: Sizes
    common: bytes = b""
    outputs: Sequence[str]
    emit: Callable[[CallEvent], None]
    arrived: float
    suspect: bool = False
    cancelled: bool = False
    repeated: bool = False
    taken: int = 0
    stalled_since: float = 0.0
    _stalled_on: Graph | None = None
    _stall_seconds: float = 0.0
    _began: float = 0.0
    _ended: float = 0.0
    _results: list[Tensors] = field(default_factory=list, repr=False)
    _uses: dict[tuple[Signature, Signature], GraphUse] = field(default_factory=dict, repr=False)

    @property
    def rows_left(self) -> int:
        """Number of its rows that are still to be computed."""
        return self.sizes.rows - self.taken

    @property
    def is_alone(self) -> bool:
        """Whether it is computed without other calls."""
        return self.suspect or self.repeated

    @property
    def stalled_on(self) -> Signature | None:
        """The signature of the graph that it waits for, or None."""
        return None if self._stalled_on is None else self._stalled_on.signature

    def part(self, rows: int) -> Part:
        """Its next rows."""
        return Part(inputs=self.inputs, sizes=self.sizes, first=self.taken, rows=rows)

    @property
    def waits_for_graph(self) -> bool:
        """Whether the graph that it waits for is still being made; it may also wait for a turn."""
        return self._stalled_on is not None and not self._stalled_on.has_ended

    def stall(self, graph: Graph, now: float) -> None:
        """Starts to wait for a graph, or keeps waiting for it."""
        if self._stalled_on is not graph:
            self.resume(now)
            self._stalled_on, self.stalled_since = graph, now

    def resume(self, now: float) -> None:
        """Ends the stall, if there is one."""
        if self._stalled_on is None:
            return
        waited = now - self.stalled_since
        self._stalled_on.stall_seconds.observe(waited)
        self._stalled_on = None
        # A stall between two parts is device time of the call, because its first part has begun.
        if not self._began:
            self._stall_seconds += waited

    def add(
        self, results: Tensors, rows: int, use: GraphUse, *, began: float, ended: float
    ) -> None:
        """Adds the results of its next rows.

        Args:
            results: The outputs of these rows.
            rows: Their number.
            use: The call of the graph that computed them.
            began: When that began, in seconds on the monotonic clock.
            ended: When it ended.
        """
        self._results.append({name: results[name] for name in self.outputs})
        self.taken += rows
        self._began, self._ended = self._began or began, ended
        known = self._uses.get((use.asked, use.served))
        self._uses[use.asked, use.served] = use if known is None else known + use

    def start_over(self) -> None:
        """Forgets the results of the rows that were computed."""
        self.taken = 0
        self._results.clear()

    def result(self, spec: CallSpec) -> WorkerResult:
        """Its result, once all rows are computed."""
        return WorkerResult(
            outputs=merge(self._results, spec),
            timings=CallTimings(
                queue_seconds=self._began - self.arrived - self._stall_seconds,
                stall_seconds=self._stall_seconds,
                device_seconds=self._ended - self._began,
            ),
            graphs=list(self._uses.values()),
        )

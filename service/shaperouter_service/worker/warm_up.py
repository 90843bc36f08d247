"""The warm-up: the graphs that are compiled or loaded before a worker is ready."""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from shaperouter_service.errors import GraphRefusedError, StartupError
from shaperouter_service.graphs import Graph, GraphState, GraphTable
from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.deployments import public_name
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.warm_up_order import warm_up_order
from shaperouter_service.traffic_record import read_record
from shaperouter_service.worker.ladders import is_of

log = structlog.get_logger(__name__)

# Minimum seconds between two log lines about the progress.
LOG_INTERVAL = 5.0
# Requests and positions of the graph that is made to decode several requests together.
BATCH_ROWS, BATCH_LENGTH = 4, 1024


class WarmUp:
    """The warm-up of a worker. Any thread may call its methods.

    Attributes:
        signatures: The signatures of its graphs, in the order of compiling.
        covers: Those that requests need; a request may already be waiting for one.
    """

    def __init__(
        self,
        graphs: GraphTable,
        *,
        covers: Sequence[Signature] = (),
        further: Sequence[Signature] = (),
    ) -> None:
        """Starts the clock; `start` requests the graphs.

        Args:
            graphs: The worker's graphs.
            covers: See above.
            further: Other graphs to make ready, after these.
        """
        self.covers = tuple(covers)
        self.signatures = tuple(dict.fromkeys([*covers, *further]))
        self._graphs = graphs
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._is_done = False
        self._logged_at = -LOG_INTERVAL
        self._logged_ended = 0

    def start(self) -> None:
        """Requests the graphs.

        Raises:
            StartupError: There is no room for one.
        """
        for signature in self.signatures:
            try:
                self._graphs.request_compile(signature, urgent=signature in self.covers)
            except GraphRefusedError as error:
                raise StartupError(f"warm: {error}") from error

    def forget(self, model: str) -> None:
        """Stops waiting for the graphs of a model that is unloaded."""
        self.covers = tuple(each for each in self.covers if each.model != model)
        self.signatures = tuple(each for each in self.signatures if each.model != model)

    @property
    def is_done(self) -> bool:
        """Whether each graph has become ready or failed; it stays so if one is tried again."""
        self._is_done = self._is_done or all(graph.has_ended for graph in self._all())
        return self._is_done

    @property
    def failed_covers(self) -> list[Graph]:
        """The graphs that requests need and that could not be compiled."""
        covers = (self._graphs.known(signature) for signature in self.covers)
        return [graph for graph in covers if graph.state is GraphState.FAILED]

    def __str__(self) -> str:
        """Describes the progress, for people."""
        graphs = self._all()
        ended = sum(graph.has_ended for graph in graphs)
        left = round(self.left_seconds)
        return f"{ended} of {len(graphs)} graphs were made, about {left} s left"

    def log_progress(self) -> None:
        """Logs the progress, if graphs have become ready or failed since the last line."""
        with self._lock:
            graphs, now = self._all(), time.monotonic()
            ended = [graph for graph in graphs if graph.has_ended]
            is_last = len(ended) == len(graphs)
            is_due = is_last or now >= self._logged_at + LOG_INTERVAL
            if len(ended) <= self._logged_ended or not is_due:
                return
            self._logged_at, self._logged_ended = now, len(ended)
        failed = sum(graph.state is GraphState.FAILED for graph in ended)
        failures = {"failed": failed} if failed else {}
        if is_last:
            seconds = round(now - self._started, 1)
            if failed:
                log.warning("worker ready", graphs=len(graphs), seconds=seconds, failed=failed)
            else:
                log.info("worker ready", graphs=len(graphs), seconds=seconds)
            return
        log.info(
            "graphs compiled or loaded before the worker is ready",
            done=len(ended),
            graphs=len(graphs),
            left_seconds=round(self.left_seconds),
            **failures,
        )

    @property
    def left_seconds(self) -> float:
        """Seconds until the last graph is expected to be ready; 0 once it is."""
        left = self._graphs.left_seconds()
        return max((left.get(signature, 0.0) for signature in self.signatures), default=0.0)

    def _all(self) -> list[Graph]:
        return [self._graphs.known(signature) for signature in self.signatures]


def first_covers(ladders: Mapping[str, Ladders | CallLadders]) -> list[Signature]:
    """The graphs that together cover every request without beam search.

    Args:
        ladders: The ladders of all models, by name.
    """
    covers: list[Signature] = []
    for name, each in ladders.items():
        if isinstance(each, CallLadders):
            # Without one, each exact size has a graph of its own.
            if (first := each.first(name)) is not None:
                covers.append(first)
        else:
            # Decode takes longest, so the others are traced and compiled beside it.
            covers += [each.first_decode(name, beams=1), *each.first_to_read(name)]
    return covers


def declared_graphs(
    declared: Iterable[Signature], ladders: Mapping[str, Ladders | CallLadders]
) -> list[Signature]:
    """The graphs that are declared for the names that models are revisions of.

    Leaves out those that the ladders of a revision do not have.

    Args:
        declared: The declared graphs.
        ladders: The ladders of the models, by name.
    """
    found = (
        replace(each, model=name)
        for name in ladders
        for each in declared
        if each.model == public_name(name)
    )
    return [signature for signature in found if is_of(ladders, signature)]


def recorded_graphs(
    record: Path | None, ladders: Mapping[str, Ladders | CallLadders], *, limit: int
) -> list[Signature]:
    """The graphs that recorded traffic makes worth compiling, best first.

    Args:
        record: Directory of the record of traffic; None without one.
        ladders: The ladders of all models, by name.
        limit: Maximum number of graphs.
    """
    if record is None:
        return []
    # Revisions of a model share its record.
    models = {public_name(model): model for model in ladders}
    public = {name: ladders[model] for name, model in models.items()}
    ordered = warm_up_order(read_record(record).values(), public, limit=limit)
    return [replace(signature, model=models[signature.model]) for signature in ordered]


def batch_covers(record: Path | None, ladders: Mapping[str, Ladders]) -> list[Signature]:
    """A graph of each model that decodes several requests together.

    Until such a graph is ready, requests that come together are decoded one by one. Skips models
    whose recorded traffic has such graphs.

    Args:
        record: As for `beam_covers`.
        ladders: Likewise.
    """
    recorded = read_record(record) if record else {}
    covers = []
    for name, each in ladders.items():
        known = recorded[name].signatures if name in recorded else {}
        served = [signature for signature, traffic in known.items() if traffic.calls]
        lane = each.lane(1)
        rows = min(BATCH_ROWS, lane.decode_rows.maximum)
        if rows > 1 and not any(one.kind is GraphKind.DECODE and one.rows > 1 for one in served):
            length = min(BATCH_LENGTH, lane.decode_lengths.maximum)
            covers.append(each.decode(name, rows=rows, length=length, beams=1))
    return covers


def beam_covers(record: Path | None, ladders: Mapping[str, Ladders]) -> list[Signature]:
    """A graph of each model that covers most beam searches.

    Skips models whose recorded traffic has no beam search. Graphs that served no call are not
    traffic.

    Args:
        record: Directory of the record of traffic; None without one.
        ladders: The ladders of models that generate tokens, by name.
    """
    recorded = read_record(record) if record else {}
    covers = []
    for name, each in ladders.items():
        known = recorded[name].signatures if name in recorded else {}
        served = {signature.beams for signature, traffic in known.items() if traffic.calls}
        if not served or max(served) > 1:
            covers.append(each.first_decode(name, each.usual_beams))
    return covers

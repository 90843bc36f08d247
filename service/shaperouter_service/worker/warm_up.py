"""What a worker makes before it is ready, and how far it is."""

import threading
import time
from collections.abc import Sequence

import structlog

from shaperouter_service.graphs import Graph, GraphState, GraphTable
from shaperouter_service.routing.signatures import Signature

log = structlog.get_logger(__name__)

# Seconds between two lines of the log that tell how far it is.
TELL_INTERVAL = 5.0


class WarmUp:
    """The graphs that are made before a worker is ready. Its methods may be called by any thread.

    Attributes:
        signatures: Of these graphs, in order of making.
    """

    def __init__(self, graphs: GraphTable, signatures: Sequence[Signature]) -> None:
        """Starts the clock; the graphs are asked for elsewhere.

        Args:
            graphs: The worker's.
            signatures: Of those that it makes first.
        """
        self.signatures = tuple(dict.fromkeys(signatures))
        self._graphs = graphs
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._told_at = -TELL_INTERVAL
        self._told_ended = 0

    @property
    def is_done(self) -> bool:
        """Whether each of them is ready, or has failed."""
        return all(graph.has_ended for graph in self._first())

    def __str__(self) -> str:
        """How far it is, for people."""
        first = self._first()
        ended = sum(graph.has_ended for graph in first)
        left = round(self.left_seconds)
        return f"{ended} of {len(first)} graphs were made, about {left} s left"

    def tell(self) -> None:
        """Logs how far it is, if graphs have ended since it was last told."""
        with self._lock:
            first, now = self._first(), time.monotonic()
            ended = [graph for graph in first if graph.has_ended]
            is_last = len(ended) == len(first)
            is_due = is_last or now >= self._told_at + TELL_INTERVAL
            if len(ended) <= self._told_ended or not is_due:
                return
            self._told_at, self._told_ended = now, len(ended)
        failed = sum(graph.state is GraphState.FAILED for graph in ended)
        failures = {"failed": failed} if failed else {}
        if is_last:
            seconds = round(now - self._started, 1)
            log.info("worker ready", graphs=len(first), seconds=seconds, **failures)
            return
        log.info(
            "graphs compiled or loaded before the worker is ready",
            done=len(ended),
            graphs=len(first),
            left_seconds=round(self.left_seconds),
            **failures,
        )

    @property
    def left_seconds(self) -> float:
        """Seconds until the last of them is expected to be ready; 0 once it is."""
        left = self._graphs.left_seconds()
        return max((left.get(signature, 0.0) for signature in self.signatures), default=0.0)

    def _first(self) -> list[Graph]:
        return [self._graphs.graph(signature) for signature in self.signatures]

"""Which graph computes waiting calls next, and which of them it computes together."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from shaperouter_service.errors import GraphRefusedError, ServiceError
from shaperouter_service.functions import Part
from shaperouter_service.graphs import Graph, GraphState, GraphTable
from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.tensors.checking import Sizes
from shaperouter_service.worker.call import Call

# Signatures whose covers are remembered. Exact sizes are endless.
MAX_REMEMBERED = 4096


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Calls that one graph computes together.

    Attributes:
        graph: The graph.
        calls: The calls, in the order of their rows.
        parts: The rows of each call.
    """

    graph: Graph
    calls: Sequence[Call]
    parts: Sequence[Part]

    @property
    def rows(self) -> int:
        """Number of rows that are no padding."""
        return sum(part.rows for part in self.parts)


class CallCovers:
    """Chooses the graphs of a model that answers once. Only the device thread may use it.

    Attributes:
        ladders: The ladders of the model; replaced when an axis loses its ladder.
    """

    def __init__(self, model: str, ladders: CallLadders, graphs: GraphTable) -> None:
        """Prepares the choice.

        Args:
            model: Name of the model.
            ladders: The ladders of the model.
            graphs: The worker's graphs.
        """
        self._model = model
        self._graphs = graphs
        self.ladders = ladders
        self._all_covers = functools.lru_cache(maxsize=MAX_REMEMBERED)(self._find_covers)

    def replace(self, ladders: CallLadders) -> None:
        """Takes the ladders that are now those of the model."""
        self.ladders = ladders
        self._all_covers.cache_clear()

    def tight(self, call: Call, rows: int) -> Signature:
        """The tight cover of `rows` rows, at most the last rung, of a call's sizes."""
        return self.ladders.tight(self._model, rows=rows, sizes=call.sizes.axes)

    def max_rows(self, call: Call) -> int:
        """Maximum rows of one graph for a call."""
        rows = self.ladders.rows
        return call.sizes.rows if rows is None else rows.maximum

    def best(self, lead: Call, waiting: Sequence[Call]) -> Batch | None:
        """The batch with a call that computes most for its time; None without a cover.

        The value of a row is its time on the graph that takes the least time for each row. So a
        short row does not join long ones unless a row of their graph is free anyway, and a graph of
        many rows is called only if they are used.

        Args:
            lead: The call.
            waiting: Other calls that may join it, in order.
        """
        ready = {
            graph: self._graphs.step_seconds(graph.signature)
            for graph in self._graphs.ready(self._model, GraphKind.CALL, 1)
        }
        one = self._one_row(lead)
        graphs = [graph for graph in ready if graph.signature.covers(one)]
        if not graphs:
            return None
        if self.ladders.rows is None or lead.is_alone:
            waiting = ()
        worths: dict[Signature, float] = {}

        def worth(call: Call) -> float:
            """The value of a row of a call, in seconds."""
            one = self._one_row(call)
            if one not in worths:
                worths[one] = min(
                    seconds / graph.signature.rows
                    for graph, seconds in ready.items()
                    if graph.signature.covers(one)
                )
            return worths[one]

        def gained(batch: Batch) -> float:
            """The value of a batch's rows, as a share of the time that it takes."""
            pairs = zip(batch.calls, batch.parts, strict=True)
            return sum(worth(call) * part.rows for call, part in pairs) / ready[batch.graph]

        return max((self.filled(graph, lead, waiting) for graph in graphs), key=gained)

    def filled(self, graph: Graph, lead: Call, waiting: Sequence[Call]) -> Batch:
        """The next rows of a call, as many as a graph has, and those of others that fit beside."""
        whole = self.ladders.rows is None
        rows = lead.sizes.rows if whole else graph.signature.rows
        calls, parts = [lead], [lead.part(min(rows, lead.rows_left))]
        free = rows - parts[0].rows
        for call in waiting:
            if not free:
                break
            # A split of other calls would leave remainders, which cost calls of their own.
            if call.rows_left > free or not _may_join(call, lead):
                continue
            if not graph.signature.covers(self._one_row(call)):
                continue
            calls.append(call)
            parts.append(call.part(call.rows_left))
            free -= call.rows_left
        return Batch(graph=graph, calls=calls, parts=parts)

    def asked(self, lead: Call, waiting: Sequence[Call]) -> Sizes:
        """The sizes of a call together with all others that are padded to the same ones."""
        limit = self.max_rows(lead)
        if self.ladders.rows is None:
            return Sizes(limit, lead.sizes.axes)
        one = self._one_row(lead)
        joined, rows = [lead.sizes.axes], lead.rows_left
        for call in waiting:
            if rows >= limit:
                break
            if _may_join(call, lead) and self._one_row(call) == one:
                joined.append(call.sizes.axes)
                rows += call.rows_left
        return Sizes(min(rows, limit), tuple(map(max, *joined, lead.sizes.axes)))

    def missing(self, call: Call) -> Graph | ServiceError:
        """The graph that a call without a cover waits for, or a permanent error.

        That is its tight cover, so that the call waits no longer than it must. A graph that covers
        all calls with its exact sizes follows in the background, and serves it, too. The call waits
        for that one if its tight cover cannot be made, as when other graphs take up the budget.
        """
        tight = self.tight(call, min(call.rows_left, self.max_rows(call)))
        largest = self.ladders.largest(tight)
        graph = self._request(tight, urgent=True)
        if isinstance(graph, Graph):
            if self._graphs.known(largest).state is GraphState.COLD:
                self._request(largest, urgent=False)
            return graph
        cover = self._request(largest, urgent=True)
        return cover if isinstance(cover, Graph) else graph

    def _request(self, signature: Signature, *, urgent: bool) -> Graph | ServiceError:
        """Requests a graph; returns it, or why there will be none."""
        try:
            graph = self._graphs.request_compile(signature, urgent=urgent, by_call=True)
        except GraphRefusedError as error:
            return error
        return graph.failure if graph.has_failed else graph

    def record_missed_savings(
        self, asked: Signature, served: Graph, seconds: float, *, share: float
    ) -> None:
        """Records the time that the tight cover, or another cover, would have saved in a call.

        Args:
            asked: The tight cover of all calls that could have been joined.
            served: The graph that was called for some of them.
            seconds: The duration of the call.
            share: The share of their rows that it was called for.
        """
        if self._graphs.graph(asked).state is GraphState.READY or self._graphs.tracer.was_tracing(
            seconds
        ):
            return
        missed = seconds - share * self._graphs.step_seconds(asked)
        if missed > 0:
            self._graphs.record_missed_savings(asked, served, missed)
        for signature in self._all_covers(asked):
            saved = seconds - share * self._graphs.step_seconds(signature)
            if saved > 0 and self._graphs.graph(signature).state is not GraphState.READY:
                self._graphs.record_possible_savings(signature, saved)

    def _one_row(self, call: Call) -> Signature:
        """The smallest graph that computes a call, in as many parts as it has rows."""
        return self.tight(call, call.sizes.rows if self.ladders.rows is None else 1)

    def _find_covers(self, asked: Signature) -> list[Signature]:
        return list(self.ladders.covers(asked))


def _may_join(call: Call, lead: Call) -> bool:
    """Whether a graph may compute a call together with another one."""
    return call is not lead and not call.is_alone and call.common == lead.common

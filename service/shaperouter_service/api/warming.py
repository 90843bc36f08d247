"""How wished-for graphs fare on their workers, until each is ready or has failed."""

import asyncio
from collections.abc import Mapping, Sequence

from shaperouter.v1 import graph_pb2
from shaperouter_service.api.wishes import Wish
from shaperouter_service.errors import ServiceError, WorkerLostError
from shaperouter_service.fleet import Fleet
from shaperouter_service.messages import signature_from_proto, signature_to_proto
from shaperouter_service.routing.signatures import Signature

ENDS = {graph_pb2.GRAPH_STATE_READY, graph_pb2.GRAPH_STATE_FAILED}


class Warming:
    """Wishes that workers have been told; `graphs` says how far they are.

    A graph ends when it is ready, and fails when its worker refuses it, cannot make it, or is lost.
    What is not waited for any more goes on: the workers know of no one who waits.
    """

    def __init__(self, fleet: Fleet, wishes: Sequence[Wish]) -> None:
        """Takes note of how things are before anything is wished for; `ask` does that.

        Args:
            fleet: The workers.
            wishes: What is wished for, on workers that are connected.
        """
        self._fleet = fleet
        self._wishes = wishes
        self._incarnations = self._incarnations_now()
        # A graph that failed or was refused before is tried again: only doing so anew is an end.
        self._before = self._known()
        self._reasons: dict[Wish, str] = {}  # why there will be no graph

    async def ask(self) -> None:
        """Tells the workers what is wished for, to the last even if the caller is cancelled."""
        by_worker: dict[str, list[Signature]] = {}
        for wish in dict.fromkeys(self._wishes):  # each once
            by_worker.setdefault(wish.worker, []).append(wish.signature)
        asking = (self._ask(worker, wanted) for worker, wanted in by_worker.items())
        await asyncio.shield(asyncio.gather(*asking))

    def graphs(self) -> list[graph_pb2.Graph]:
        """The graphs as they are now, one for each wish, in their order."""
        incarnations = self._incarnations_now()
        for wish in self._wishes:
            if incarnations.get(wish.worker) != self._incarnations.get(wish.worker):
                self._reasons.setdefault(wish, f"{wish.worker} was lost")
        known = self._known()
        return [self._graph(wish, known) for wish in self._wishes]

    async def _ask(self, worker: str, wanted: Sequence[Signature]) -> None:
        try:
            refused: Mapping[Signature, str] = await self._fleet.want(worker, wanted)
        except WorkerLostError:
            refused = dict.fromkeys(wanted, f"{worker} was lost")
        except ServiceError as error:
            refused = dict.fromkeys(wanted, str(error))
        for signature, reason in refused.items():
            self._reasons[Wish(signature=signature, worker=worker)] = reason

    def _graph(self, wish: Wish, known: Mapping[Wish, graph_pb2.Graph]) -> graph_pb2.Graph:
        graph = graph_pb2.Graph(
            signature=signature_to_proto(wish.signature),
            worker=wish.worker,
            state=graph_pb2.GRAPH_STATE_TRACING,  # or on the way to the worker's next snapshot
        )
        if reason := self._reasons.get(wish):
            graph.state, graph.error = graph_pb2.GRAPH_STATE_FAILED, reason
        elif wish in known and not self._is_still_to_begin(known[wish], wish):
            graph.CopyFrom(known[wish])
            if graph.state == graph_pb2.GRAPH_STATE_COLD:
                graph.state = graph_pb2.GRAPH_STATE_FAILED
        return graph

    def _is_still_to_begin(self, graph: graph_pb2.Graph, wish: Wish) -> bool:
        """Whether the worker's snapshot is older than its taking up of the wish."""
        before = self._before.get(wish, graph_pb2.Graph())
        if graph.state == graph_pb2.GRAPH_STATE_FAILED:
            return graph.failures == before.failures and not graph.retry_seconds
        if graph.state == graph_pb2.GRAPH_STATE_COLD:
            # With an error it was refused when its turn came. If that was before, it is older now.
            return not graph.error or (
                bool(before.error) and graph.state_seconds >= before.state_seconds
            )
        return False

    def _known(self) -> dict[Wish, graph_pb2.Graph]:
        return {
            Wish(signature=signature_from_proto(graph.signature), worker=graph.worker): graph
            for graph in self._fleet.catalog.graphs()
        }

    def _incarnations_now(self) -> dict[str, str]:
        return {each.worker: each.incarnation for each in self._fleet.catalog.snapshots()}

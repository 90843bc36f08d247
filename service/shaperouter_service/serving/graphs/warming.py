"""Progress of requested graphs on their workers, until each is ready or has failed."""

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence

from shaperouter_service.errors import ServiceError, WorkerLostError
from shaperouter_service.fleet import Fleet
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import GraphReport, GraphState
from shaperouter_service.serving.graphs.compile_requests import CompileRequest

ENDS = {GraphState.READY, GraphState.FAILED}


class Warming:
    """Requested graphs on their workers; `graphs` shows their progress.

    A graph is done when it is ready, and fails when its worker refuses it, cannot make it, or is
    lost. The compilations continue even if nobody waits for them any more.
    """

    def __init__(self, fleet: Fleet, requests: Sequence[CompileRequest]) -> None:
        """Records the state before anything is requested; `request` sends the requests.

        Args:
            fleet: The workers.
            requests: The requested graphs, on workers that are connected.
        """
        self._fleet = fleet
        self._requests = requests
        self._incarnations = self._incarnations_now()
        # A graph that failed or was refused earlier is tried again; only a new failure ends it.
        self._before = self._known()
        self._reasons: dict[CompileRequest, str] = {}  # why a graph will not be made

    async def request(self) -> None:
        """Requests the graphs from the workers, all of them even if the caller is cancelled."""
        by_worker: dict[str, list[Signature]] = {}
        for request in dict.fromkeys(self._requests):  # each once
            by_worker.setdefault(request.worker, []).append(request.signature)
        requests = (self._request(worker, wanted) for worker, wanted in by_worker.items())
        await asyncio.shield(asyncio.gather(*requests))

    def graphs(self) -> list[GraphReport]:
        """The present state of the graphs, one for each request, in order."""
        incarnations = self._incarnations_now()
        for request in self._requests:
            if incarnations.get(request.worker) != self._incarnations.get(request.worker):
                self._reasons.setdefault(request, f"{request.worker} was lost")
        known = self._known()
        return [self._graph(request, known) for request in self._requests]

    async def _request(self, worker: str, wanted: Sequence[Signature]) -> None:
        try:
            refused: Mapping[Signature, str] = await self._fleet.request_compile(worker, wanted)
        except WorkerLostError:
            refused = dict.fromkeys(wanted, f"{worker} was lost")
        except ServiceError as error:
            refused = dict.fromkeys(wanted, str(error))
        for signature, reason in refused.items():
            self._reasons[CompileRequest(signature=signature, worker=worker)] = reason

    def _graph(
        self, request: CompileRequest, known: Mapping[CompileRequest, GraphReport]
    ) -> GraphReport:
        # Queued until the worker's snapshots show it.
        graph = GraphReport(
            signature=request.signature, worker=request.worker, state=GraphState.QUEUED
        )
        if reason := self._reasons.get(request):
            return dataclasses.replace(graph, state=GraphState.FAILED, error=reason)
        if request not in known or self._is_still_to_begin(known[request], request):
            return graph
        graph = known[request]
        if graph.state is GraphState.COLD:
            return dataclasses.replace(graph, state=GraphState.FAILED)
        return graph

    def _is_still_to_begin(self, graph: GraphReport, request: CompileRequest) -> bool:
        """Whether the worker's snapshot is from before it accepted the graph."""
        never_made = GraphReport(
            signature=request.signature, worker=request.worker, state=GraphState.COLD
        )
        before = self._before.get(request, never_made)
        if graph.state is GraphState.FAILED:
            return graph.failures == before.failures and not graph.retry_seconds
        if graph.state is GraphState.COLD:
            # A cold graph with an error was refused when its turn came. If its state changed before
            # this request, its age has grown since.
            return not graph.error or (
                bool(before.error) and graph.state_seconds >= before.state_seconds
            )
        return False

    def _known(self) -> dict[CompileRequest, GraphReport]:
        return {
            CompileRequest(signature=graph.signature, worker=graph.worker): graph
            for graph in self._fleet.catalog.graphs()
        }

    def _incarnations_now(self) -> dict[str, str]:
        return {each.worker: each.incarnation for each in self._fleet.catalog.snapshots()}

"""GraphService: what is compiled, what it cost and what it serves."""

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Any

from shaperouter.v1 import graph_pb2, graph_pb2_grpc
from shaperouter_service.api.warming import ENDS, Warming
from shaperouter_service.api.wishes import wishes_of
from shaperouter_service.errors import StoppingError
from shaperouter_service.fleet import Fleet
from shaperouter_service.messages import (
    ladders_from_proto,
    signature_from_proto,
    signature_to_proto,
)

# Seconds between two answers of a stream: fresh enough for people, however many workers there are.
UPDATE_INTERVAL = 0.2


class GraphServicer(graph_pb2_grpc.GraphServiceServicer):
    """See graph.proto."""

    def __init__(self, fleet: Fleet) -> None:
        """Tells of the graphs of a fleet's workers."""
        self._fleet = fleet
        self._catalog = fleet.catalog

    async def ListGraphs(  # noqa: N802 (gRPC's name)
        self, request: graph_pb2.ListGraphsRequest, context: Any
    ) -> graph_pb2.ListGraphsResponse:
        """Lists the graphs of all workers."""
        graphs = self._graphs(self._models(request.model), include_cold=request.include_cold)
        return graph_pb2.ListGraphsResponse(graphs=graphs)

    async def WatchGraphs(  # noqa: N802 (gRPC's name)
        self, request: graph_pb2.WatchGraphsRequest, context: Any
    ) -> AsyncIterator[graph_pb2.WatchGraphsResponse]:
        """Lists the graphs of all workers, at once and after changes."""
        models = self._models(request.model)
        async for _ in self._updates():
            graphs = self._graphs(models, include_cold=request.include_cold)
            yield graph_pb2.WatchGraphsResponse(graphs=graphs)

    async def WarmGraphs(  # noqa: N802 (gRPC's name)
        self, request: graph_pb2.WarmGraphsRequest, context: Any
    ) -> AsyncIterator[graph_pb2.WarmGraphsResponse]:
        """Has graphs made ready, and tells how it goes until each is ready or has failed."""
        warming = Warming(self._fleet, wishes_of(request, self._catalog))
        await warming.ask()
        async for _ in self._updates():
            graphs = warming.graphs()
            yield graph_pb2.WarmGraphsResponse(graphs=graphs)
            if all(graph.state in ENDS for graph in graphs):
                return
        raise StoppingError

    async def _updates(self) -> AsyncIterator[None]:
        """Yields at once and after changes, until the service stops."""
        async for _ in self._fleet.changes():
            yield
            await asyncio.sleep(UPDATE_INTERVAL)

    def _models(self, name: str) -> Collection[str]:
        return [self._catalog.resolve(name)] if name else self._catalog.model_names

    def _graphs(self, models: Collection[str], *, include_cold: bool) -> list[graph_pb2.Graph]:
        graphs = [
            graph
            for graph in self._catalog.graphs()
            if graph.signature.model in models
            # Workers tell of cold graphs, too, whose absence has cost something.
            and (include_cold or graph.state != graph_pb2.GRAPH_STATE_COLD)
        ]
        if include_cold:
            graphs += self._cold(models, graphs)
        return sorted(
            graphs, key=lambda graph: (signature_from_proto(graph.signature), graph.worker)
        )

    def _cold(self, models: Collection[str], known: list[graph_pb2.Graph]) -> list[graph_pb2.Graph]:
        taken = {(graph.worker, signature_from_proto(graph.signature)) for graph in known}
        return [
            graph_pb2.Graph(
                signature=signature_to_proto(signature),
                worker=snapshot.worker,
                state=graph_pb2.GRAPH_STATE_COLD,
            )
            for snapshot in self._catalog.snapshots()
            for model in snapshot.models
            if model.name in models
            for signature in ladders_from_proto(model.ladders).signatures(model.name)
            if (snapshot.worker, signature) not in taken
        ]

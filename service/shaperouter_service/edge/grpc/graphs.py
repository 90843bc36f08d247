"""GraphService: which graphs are compiled, what they cost and what they serve."""

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Any

from shaperouter.v1 import graph_pb2, graph_pb2_grpc
from shaperouter_service.auth import CallPlaces
from shaperouter_service.edge.grpc.clients import client_of
from shaperouter_service.errors import StoppingError
from shaperouter_service.fleet import Fleet
from shaperouter_service.routing.snapshots import GraphReport
from shaperouter_service.routing.views import GraphState
from shaperouter_service.serving.graphs.compile_requests import wishes_of
from shaperouter_service.serving.graphs.warming import ENDS, Warming
from shaperouter_service.wire.graphs import graph_to_message

# Minimum seconds between two answers of a stream: fresh enough for people, however many workers.
UPDATE_INTERVAL = 0.2

# Maximum number of streams; one whose client does not read holds about 150 kB. And maximum answers
# per second of all streams together; each takes about a millisecond, so with many streams, each
# gets fewer.
MAX_STREAMS, MAX_UPDATES_PER_SECOND = 256, 100.0


class GraphServicer(graph_pb2_grpc.GraphServiceServicer):
    """See graph.proto."""

    def __init__(self, fleet: Fleet) -> None:
        """Serves the graphs of a fleet's workers."""
        self._fleet = fleet
        self._catalog = fleet.catalog
        self._streams = CallPlaces(MAX_STREAMS)
        # The latest lists, by model and whether they include cold graphs, and the catalog version
        # they show.
        self._lists: dict[tuple[str, bool], graph_pb2.WatchGraphsResponse] = {}
        self._lists_version = self._catalog.version

    async def ListGraphs(  # noqa: N802 (gRPC's name)
        self, request: graph_pb2.ListGraphsRequest, context: Any
    ) -> graph_pb2.ListGraphsResponse:
        """Lists the graphs of all workers."""
        return graph_pb2.ListGraphsResponse(graphs=self._list(request).graphs)

    async def WatchGraphs(  # noqa: N802 (gRPC's name)
        self, request: graph_pb2.WatchGraphsRequest, context: Any
    ) -> AsyncIterator[graph_pb2.WatchGraphsResponse]:
        """Lists the graphs of all workers, at once and again after changes."""
        with self._streams.take(client_of(context)):
            async for _ in self._updates():
                yield self._list(request)

    async def WarmGraphs(  # noqa: N802 (gRPC's name)
        self, request: graph_pb2.WarmGraphsRequest, context: Any
    ) -> AsyncIterator[graph_pb2.WarmGraphsResponse]:
        """Makes graphs ready and reports progress until each is ready or has failed."""
        with self._streams.take(client_of(context)):
            warming = Warming(self._fleet, wishes_of(request, self._catalog))
            await warming.ask()
            async for _ in self._updates():
                graphs = warming.graphs()
                yield graph_pb2.WarmGraphsResponse(graphs=map(graph_to_message, graphs))
                if all(graph.state in ENDS for graph in graphs):
                    return
        raise StoppingError

    async def _updates(self) -> AsyncIterator[None]:
        """Yields at once and after changes, until the service stops."""
        async for _ in self._fleet.changes():
            yield
            await asyncio.sleep(max(UPDATE_INTERVAL, self._streams.taken / MAX_UPDATES_PER_SECOND))

    def _list(
        self, request: graph_pb2.ListGraphsRequest | graph_pb2.WatchGraphsRequest
    ) -> graph_pb2.WatchGraphsResponse:
        """Lists the graphs for a request, only once between two changes for all callers."""
        if self._lists_version != self._catalog.version:
            self._lists.clear()
            self._lists_version = self._catalog.version
        key = (request.model, request.include_cold)
        if key not in self._lists:
            models = (
                [self._catalog.resolve(request.model)]
                if request.model
                else self._catalog.model_names
            )
            graphs = self._graphs(models, include_cold=request.include_cold)
            self._lists[key] = graph_pb2.WatchGraphsResponse(graphs=map(graph_to_message, graphs))
        return self._lists[key]

    def _graphs(self, models: Collection[str], *, include_cold: bool) -> list[GraphReport]:
        graphs = [
            graph
            for graph in self._catalog.graphs()
            if graph.signature.model in models
            # Workers also report cold graphs whose absence has cost something.
            and (include_cold or graph.state is not GraphState.COLD)
        ]
        if include_cold:
            graphs += self._cold(models, graphs)
        return sorted(graphs, key=lambda graph: (graph.signature, graph.worker))

    def _cold(self, models: Collection[str], known: list[GraphReport]) -> list[GraphReport]:
        taken = {(graph.worker, graph.signature) for graph in known}
        return [
            GraphReport(signature=signature, worker=snapshot.worker, state=GraphState.COLD)
            for snapshot in self._catalog.snapshots()
            for model in snapshot.models
            if model.name in models
            for signature in model.ladders.signatures(model.name)
            if (snapshot.worker, signature) not in taken
        ]

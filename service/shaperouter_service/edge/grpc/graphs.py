"""GraphService: the graphs of all workers, over gRPC."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from shaperouter.v1 import graph_pb2, graph_pb2_grpc
from shaperouter_service.edge.grpc_calls import current_call
from shaperouter_service.serving.graphs.graphs import Graphs
from shaperouter_service.wire.graphs import graph_to_message, warm_request_from_message


class GraphServicer(graph_pb2_grpc.GraphServiceServicer):
    """See graph.proto."""

    def __init__(self, graphs: Graphs) -> None:
        """Takes the core's graphs."""
        self._graphs = graphs
        # The latest lists, by model and whether they include cold graphs, and the version that
        # they show: between two changes, a list is made once for all callers.
        self._lists: dict[tuple[str, bool], graph_pb2.WatchGraphsResponse] = {}
        self._lists_version = graphs.version

    async def ListGraphs(  # noqa: N802 (gRPC's name)
        self, request: graph_pb2.ListGraphsRequest, context: Any
    ) -> graph_pb2.ListGraphsResponse:
        """Lists the graphs of all workers."""
        return graph_pb2.ListGraphsResponse(graphs=self._list(request).graphs)

    async def WatchGraphs(  # noqa: N802 (gRPC's name)
        self, request: graph_pb2.WatchGraphsRequest, context: Any
    ) -> AsyncIterator[graph_pb2.WatchGraphsResponse]:
        """Lists the graphs of all workers, at once and again after changes."""
        async with contextlib.aclosing(self._graphs.changes(current_call())) as changes:
            async for _ in changes:
                yield self._list(request)

    async def WarmGraphs(  # noqa: N802 (gRPC's name)
        self, request: graph_pb2.WarmGraphsRequest, context: Any
    ) -> AsyncIterator[graph_pb2.WarmGraphsResponse]:
        """Makes graphs ready and reports progress until each is ready or has failed."""
        asked = warm_request_from_message(request)
        async with contextlib.aclosing(self._graphs.warm(asked, current_call())) as states:
            async for graphs in states:
                yield graph_pb2.WarmGraphsResponse(graphs=map(graph_to_message, graphs))

    def _list(
        self, request: graph_pb2.ListGraphsRequest | graph_pb2.WatchGraphsRequest
    ) -> graph_pb2.WatchGraphsResponse:
        if self._lists_version != self._graphs.version:
            self._lists.clear()
            self._lists_version = self._graphs.version
        key = (request.model, request.include_cold)
        if key not in self._lists:
            graphs = self._graphs.listed(request.model, include_cold=request.include_cold)
            self._lists[key] = graph_pb2.WatchGraphsResponse(graphs=map(graph_to_message, graphs))
        return self._lists[key]

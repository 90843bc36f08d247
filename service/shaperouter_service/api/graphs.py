"""GraphService: what is compiled, what it cost and what it serves."""

from typing import Any

from shaperouter.v1 import graph_pb2, graph_pb2_grpc
from shaperouter_service.messages import (
    ladders_from_proto,
    signature_from_proto,
    signature_to_proto,
)
from shaperouter_service.routing.catalog import Catalog


class GraphServicer(graph_pb2_grpc.GraphServiceServicer):
    """See graph.proto."""

    def __init__(self, catalog: Catalog) -> None:
        """Tells of the graphs of a catalog."""
        self._catalog = catalog

    async def ListGraphs(  # noqa: N802 (gRPC's name)
        self, request: graph_pb2.ListGraphsRequest, context: Any
    ) -> graph_pb2.ListGraphsResponse:
        """Lists the graphs of all workers."""
        names = [self._catalog.resolve(request.model)] if request.model else None
        graphs = [
            graph
            for graph in self._catalog.graphs()
            if names is None or graph.signature.model in names
        ]
        if request.include_cold:
            graphs += self._cold(names or self._catalog.model_names, graphs)
        graphs.sort(key=lambda graph: (signature_from_proto(graph.signature), graph.worker))
        return graph_pb2.ListGraphsResponse(graphs=graphs)

    def _cold(self, names: Any, known: list[graph_pb2.Graph]) -> list[graph_pb2.Graph]:
        taken = {(graph.worker, signature_from_proto(graph.signature)) for graph in known}
        return [
            graph_pb2.Graph(
                signature=signature_to_proto(signature),
                worker=snapshot.worker,
                state=graph_pb2.GRAPH_STATE_COLD,
            )
            for snapshot in self._catalog.snapshots()
            for model in snapshot.models
            if model.name in names
            for signature in ladders_from_proto(model.ladders).signatures(model.name)
            if (snapshot.worker, signature) not in taken
        ]

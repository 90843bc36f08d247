"""Reports about graphs, requests to warm them, and their messages."""

from itertools import islice

from shaperouter.v1 import graph_pb2, signature_pb2
from shaperouter_service.generation.limits import MAX_WARM_SIGNATURES
from shaperouter_service.routing.snapshots import GraphReport
from shaperouter_service.routing.warm_request import RequestedGraph, WarmRequest
from shaperouter_service.wire.translation import Translation

graph_to_message = Translation(GraphReport, graph_pb2.Graph).to_message
_REQUESTED = Translation(RequestedGraph, signature_pb2.Signature)


def warm_request_from_message(message: graph_pb2.WarmGraphsRequest) -> WarmRequest:
    """The request of a message; an unknown kind of graph stays, to be refused."""
    # A message has room for 500,000.
    first = islice(message.signatures, MAX_WARM_SIGNATURES)
    return WarmRequest(
        count=len(message.signatures),
        graphs=list(map(_REQUESTED.from_message, first)),
        workers=message.workers,
        all_workers=message.all_workers,
    )

"""Warming graphs through a router."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from grpc import aio

from shaperouter.v1 import graph_pb2, signature_pb2

if TYPE_CHECKING:
    from harness.router import Router

PREFILL, DECODE = signature_pb2.GRAPH_KIND_PREFILL, signature_pb2.GRAPH_KIND_DECODE


def shape(
    length: int, *, kind: Any = PREFILL, rows: int = 1, beams: int = 1, model: str = "tiny"
) -> signature_pb2.Signature:
    return signature_pb2.Signature(model=model, kind=kind, rows=rows, length=length, beams=beams)


def warm(router: Router, *signatures: signature_pb2.Signature, **fields: Any) -> Any:
    return router.graphs.WarmGraphs(graph_pb2.WarmGraphsRequest(signatures=signatures, **fields))


async def last(call: Any) -> list[graph_pb2.Graph]:
    """The result of a warm-up."""
    graphs = []
    while (response := await call.read()) is not aio.EOF:
        graphs = list(response.graphs)
    return graphs


def states(graphs: Sequence[graph_pb2.Graph]) -> list[int]:
    return [graph.state for graph in graphs]

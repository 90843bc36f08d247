"""Reports about graphs and their messages."""

from collections.abc import Mapping
from itertools import islice

from shaperouter.v1 import graph_pb2
from shaperouter_service.generation.limits import MAX_WARM_SIGNATURES
from shaperouter_service.routing.snapshots import GraphReport, Histogram
from shaperouter_service.routing.views import GraphState
from shaperouter_service.routing.warm_request import RequestedGraph, WarmRequest
from shaperouter_service.wire.signatures import (
    kind_from_message,
    signature_from_message,
    signature_to_message,
)

_STATE_TO_MESSAGE: Mapping[GraphState, graph_pb2.GraphState] = {
    GraphState.COLD: graph_pb2.GRAPH_STATE_COLD,
    GraphState.QUEUED: graph_pb2.GRAPH_STATE_QUEUED,
    GraphState.TRACING: graph_pb2.GRAPH_STATE_TRACING,
    GraphState.COMPILING: graph_pb2.GRAPH_STATE_COMPILING,
    GraphState.READY: graph_pb2.GRAPH_STATE_READY,
    GraphState.FAILED: graph_pb2.GRAPH_STATE_FAILED,
}
_STATE_FROM_MESSAGE = {message: state for state, message in _STATE_TO_MESSAGE.items()}


def warm_request_from_message(message: graph_pb2.WarmGraphsRequest) -> WarmRequest:
    """The request of a message; an unknown kind of graph stays, to be refused."""
    return WarmRequest(
        count=len(message.signatures),
        graphs=[
            RequestedGraph(
                model=signature.model,
                kind=kind_from_message(signature.kind),
                beams=signature.beams,
                rows=signature.rows,
                length=signature.length,
            )
            # A message has room for 500,000.
            for signature in islice(message.signatures, MAX_WARM_SIGNATURES)
        ],
        workers=message.workers,
        all_workers=message.all_workers,
    )


def graph_to_message(graph: GraphReport) -> graph_pb2.Graph:
    """The message of a report about a graph."""
    return graph_pb2.Graph(
        signature=signature_to_message(graph.signature),
        worker=graph.worker,
        state=_STATE_TO_MESSAGE[graph.state],
        traces=graph.traces,
        compiles=graph.compiles,
        loads=graph.loads,
        failures=graph.failures,
        trace_seconds=graph.trace_seconds,
        compile_seconds=_histogram_to_message(graph.compile_seconds),
        load_seconds=graph.load_seconds,
        make_seconds=graph.make_seconds,
        stall_seconds=_histogram_to_message(graph.stall_seconds),
        device_seconds=_histogram_to_message(graph.device_seconds),
        error=graph.error,
        step_seconds=graph.step_seconds,
        missed_seconds=graph.missed_seconds,
        recent_missed_seconds=graph.recent_missed_seconds,
        would_save_seconds=graph.would_save_seconds,
        recent_served_seconds=graph.recent_served_seconds,
        padded_seconds=graph.padded_seconds,
        state_seconds=graph.state_seconds,
        retry_seconds=graph.retry_seconds,
        left_seconds=graph.left_seconds,
        before_ready=graph.before_ready,
    )


def graph_from_message(message: graph_pb2.Graph) -> GraphReport:
    """The report of a message about a graph."""
    return GraphReport(
        signature=signature_from_message(message.signature),
        worker=message.worker,
        state=_STATE_FROM_MESSAGE[message.state],
        traces=message.traces,
        compiles=message.compiles,
        loads=message.loads,
        failures=message.failures,
        trace_seconds=message.trace_seconds,
        compile_seconds=_histogram_from_message(message.compile_seconds),
        load_seconds=message.load_seconds,
        make_seconds=message.make_seconds,
        stall_seconds=_histogram_from_message(message.stall_seconds),
        device_seconds=_histogram_from_message(message.device_seconds),
        error=message.error,
        step_seconds=message.step_seconds,
        missed_seconds=message.missed_seconds,
        recent_missed_seconds=message.recent_missed_seconds,
        would_save_seconds=message.would_save_seconds,
        recent_served_seconds=message.recent_served_seconds,
        padded_seconds=message.padded_seconds,
        state_seconds=message.state_seconds,
        retry_seconds=message.retry_seconds,
        left_seconds=message.left_seconds,
        before_ready=message.before_ready,
    )


def _histogram_to_message(histogram: Histogram) -> graph_pb2.Histogram:
    return graph_pb2.Histogram(bounds=histogram.bounds, counts=histogram.counts, sum=histogram.sum)


def _histogram_from_message(message: graph_pb2.Histogram) -> Histogram:
    return Histogram(tuple(message.bounds), tuple(message.counts), message.sum)

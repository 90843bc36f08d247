"""Graphs and their messages."""

from collections.abc import Mapping

from shaperouter.v1 import graph_pb2
from shaperouter_service.routing.views import GraphState

STATES: Mapping[GraphState, graph_pb2.GraphState] = {
    GraphState.COLD: graph_pb2.GRAPH_STATE_COLD,
    GraphState.QUEUED: graph_pb2.GRAPH_STATE_QUEUED,
    GraphState.TRACING: graph_pb2.GRAPH_STATE_TRACING,
    GraphState.COMPILING: graph_pb2.GRAPH_STATE_COMPILING,
    GraphState.READY: graph_pb2.GRAPH_STATE_READY,
    GraphState.FAILED: graph_pb2.GRAPH_STATE_FAILED,
}
STATES_FROM_PROTO = {message: state for state, message in STATES.items()}

"""The worker's state as a message: what routers route by, and what metrics are made of."""

from collections.abc import Iterable, Mapping

from shaperouter.v1 import graph_pb2, model_pb2, worker_pb2
from shaperouter_service.graphs import Graph, GraphState
from shaperouter_service.messages import ladders_to_proto, signature_to_proto
from shaperouter_service.models import Model
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.worker.scheduler import LaneScheduler

_STATES: Mapping[GraphState, graph_pb2.GraphState] = {
    GraphState.TRACING: graph_pb2.GRAPH_STATE_TRACING,
    GraphState.COMPILING: graph_pb2.GRAPH_STATE_COMPILING,
    GraphState.READY: graph_pb2.GRAPH_STATE_READY,
    GraphState.FAILED: graph_pb2.GRAPH_STATE_FAILED,
}


def model_message(
    model: Model, ladders: Ladders, lanes: Iterable[LaneScheduler]
) -> model_pb2.Model:
    """Describes a model; what only a router knows is left out."""
    return model_pb2.Model(
        name=model.name,
        family=model.family.name,
        vocab_size=model.family.vocab_size,
        max_length=model.family.max_length,
        default_options=model.default_options,
        dtype=model.dtype.name,
        parameters=model.parameters,
        weight_bytes=model.weight_bytes,
        kv_cache_bytes=sum(lane.cache_bytes for lane in lanes),
        slots=ladders.lane(1).decode_rows.maximum,
        ladders=ladders_to_proto(ladders),
    )


def lane_message(lane: LaneScheduler) -> worker_pb2.Lane:
    """Describes the load of a lane."""
    return worker_pb2.Lane(
        model=lane.model.name,
        beams=lane.beams,
        active_slots=lane.active_slots,
        total_slots=lane.slots,
        queued=lane.queued,
        prefill_padding_tokens=lane.prefill_padding_tokens,
        decode_padding_tokens=lane.decode_padding_tokens,
    )


def graph_message(graph: Graph, worker: str) -> graph_pb2.Graph:
    """Describes a graph."""
    return graph_pb2.Graph(
        signature=signature_to_proto(graph.signature),
        worker=worker,
        state=_STATES[graph.state],
        traces=graph.program.traces,
        compiles=graph.compiles,
        loads=graph.loads,
        failures=graph.failures,
        trace_seconds=graph.trace_seconds,
        compile_seconds=graph.compile_seconds.to_proto(),
        load_seconds=graph.load_seconds,
        stall_seconds=graph.stall_seconds.to_proto(),
        device_seconds=graph.device_seconds.to_proto(),
        error=graph.error,
    )

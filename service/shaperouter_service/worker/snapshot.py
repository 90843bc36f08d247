"""The worker's state as a message: what routers route by, and what metrics are made of."""

from collections.abc import Mapping

from shaperouter.v1 import graph_pb2, model_pb2, worker_pb2
from shaperouter_service.graphs import Graph, GraphState
from shaperouter_service.messages import signature_to_proto
from shaperouter_service.models import DTYPE
from shaperouter_service.worker.scheduler import LaneScheduler

_STATES: Mapping[GraphState, graph_pb2.GraphState] = {
    GraphState.TRACING: graph_pb2.GRAPH_STATE_TRACING,
    GraphState.COMPILING: graph_pb2.GRAPH_STATE_COMPILING,
    GraphState.READY: graph_pb2.GRAPH_STATE_READY,
    GraphState.FAILED: graph_pb2.GRAPH_STATE_FAILED,
}


def model_message(scheduler: LaneScheduler) -> model_pb2.Model:
    """Describes the model of a lane; what only a router knows is left out."""
    lane, ladders = scheduler.lane, scheduler.ladders
    model = lane.model
    return model_pb2.Model(
        name=model.name,
        family=model.family.name,
        vocab_size=model.family.vocab_size,
        max_length=model.family.max_length,
        eos_token_ids=model.eos_token_ids,
        default_do_sample=model.do_sample,
        default_temperature=model.temperature,
        dtype=DTYPE.name,
        parameters=model.parameters,
        weight_bytes=model.weight_bytes,
        kv_cache_bytes=lane.cache_bytes,
        slots=lane.slots,
        ladders=model_pb2.Ladders(
            prefill_lengths=ladders.prefill_lengths.rungs,
            decode_lengths=ladders.decode_lengths.rungs,
            decode_rows=ladders.decode_rows.rungs,
            beams=ladders.beams.rungs,
        ),
    )


def lane_message(scheduler: LaneScheduler) -> worker_pb2.Lane:
    """Describes the load of a lane."""
    return worker_pb2.Lane(
        model=scheduler.lane.model.name,
        beams=scheduler.beams,
        active_slots=scheduler.active_slots,
        total_slots=scheduler.lane.slots,
        queued=scheduler.queued,
        prefill_padding_tokens=scheduler.prefill_padding_tokens,
        decode_padding_tokens=scheduler.decode_padding_tokens,
    )


def graph_message(graph: Graph, worker: str) -> graph_pb2.Graph:
    """Describes a graph."""
    return graph_pb2.Graph(
        signature=signature_to_proto(graph.signature),
        worker=worker,
        state=_STATES[graph.state],
        traces=graph.program.traces,
        compiles=graph.compiles,
        failures=graph.failures,
        trace_seconds=graph.trace_seconds,
        compile_seconds=graph.compile_seconds.to_proto(),
        stall_seconds=graph.stall_seconds.to_proto(),
        device_seconds=graph.device_seconds.to_proto(),
        error=graph.error,
    )

"""The worker's state as a message: what routers route by, and what metrics are made of."""

import time
from collections.abc import Iterable, Mapping

from shaperouter.v1 import graph_pb2, model_pb2, worker_pb2
from shaperouter_service.graphs import CompileMode, Graph, GraphState, GraphTable, memory_bytes
from shaperouter_service.models import EncoderDecoder, Model
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.wire.graphs import STATES
from shaperouter_service.wire.ladders import ladders_to_message
from shaperouter_service.wire.options import options_to_message
from shaperouter_service.wire.signatures import signature_to_message
from shaperouter_service.wire.transcript_settings import transcript_settings_to_message
from shaperouter_service.worker.scheduler import LaneScheduler

_MODES: Mapping[CompileMode, worker_pb2.CompileMode] = {
    CompileMode.LAZY: worker_pb2.COMPILE_MODE_LAZY,
    CompileMode.WARM: worker_pb2.COMPILE_MODE_WARM,
    CompileMode.FROZEN: worker_pb2.COMPILE_MODE_FROZEN,
}


def model_message(
    model: Model, ladders: Ladders, lanes: Iterable[LaneScheduler], *, kernels: str
) -> model_pb2.Model:
    """Describes a model; what only a router knows is left out."""
    return model_pb2.Model(
        name=model.name,
        family=model.family.name,
        vocab_size=model.family.vocab_size,
        max_length=model.family.max_length,
        default_options=options_to_message(model.default_options),
        dtype=model.dtype.name,
        weight_dtype=model.weight_dtype.name,
        kernels=kernels,
        parameters=model.parameters,
        weight_bytes=model.weight_bytes,
        kv_cache_bytes=sum(lane.cache_bytes for lane in lanes),
        kv_cache_bytes_per_token=model.kv_cache_bytes_per_token,
        slots=ladders.lane(1).decode_rows.maximum,
        ladders=ladders_to_message(ladders),
        kind=_kind(model),
        max_source_length=model.family.max_source_length,
        encoder_weight_bytes=model.encoder_weight_bytes,
        decoder_start_token_id=model.decoder_start_token_id,
        transcripts=None
        if model.transcripts is None
        else transcript_settings_to_message(model.transcripts.settings),
    )


def _kind(model: Model) -> model_pb2.ModelKind:
    if model.transcripts is not None:
        return model_pb2.MODEL_KIND_TRANSCRIBER
    if isinstance(model.family, EncoderDecoder):
        return model_pb2.MODEL_KIND_ENCODER_DECODER
    return model_pb2.MODEL_KIND_DECODER


def lane_message(lane: LaneScheduler) -> worker_pb2.Lane:
    """Describes the load of a lane."""
    backlog = lane.backlog
    return worker_pb2.Lane(
        model=lane.model.name,
        beams=lane.beams,
        active_slots=lane.active_slots,
        total_slots=lane.slots,
        queued=lane.queued,
        backlog_tokens=backlog.tokens,
        backlog_source_tokens=sum(backlog.sources),
        backlog_sources=len(backlog.sources),
        backlog_prompt_tokens=sum(backlog.prompts),
        backlog_prompts=len(backlog.prompts),
        encode_padding_tokens=lane.reader.encode_padding_tokens,
        prefill_padding_tokens=lane.reader.prefill_padding_tokens,
        decode_padding_tokens=lane.decode_padding_tokens,
        align_padding_tokens=lane.reader.align_padding_tokens,
    )


def graph_message(
    graph: Graph, worker: str, *, left_seconds: float, before_ready: bool
) -> graph_pb2.Graph:
    """Describes a graph; what the table and the worker know of it besides is given."""
    now = time.monotonic()
    failed = graph.state is GraphState.FAILED
    return graph_pb2.Graph(
        signature=signature_to_message(graph.signature),
        worker=worker,
        state=STATES[graph.state],
        traces=graph.traces,
        compiles=graph.compiles,
        loads=graph.loads,
        failures=graph.failures,
        trace_seconds=graph.trace_seconds,
        compile_seconds=graph.compile_seconds.to_proto(),
        load_seconds=graph.load_seconds,
        make_seconds=graph.make_seconds,
        stall_seconds=graph.stall_seconds.to_proto(),
        device_seconds=graph.device_seconds.to_proto(),
        error=graph.error,
        step_seconds=graph.step_seconds or 0.0,
        missed_seconds=graph.missed_seconds,
        recent_missed_seconds=graph.recent_missed.at(now),
        would_save_seconds=graph.would_save.at(now),
        recent_served_seconds=graph.recent_served.at(now),
        padded_seconds=graph.padded_seconds,
        state_seconds=now - graph.since,
        retry_seconds=max(0.0, graph.retry_at - now) if failed else 0.0,
        left_seconds=left_seconds,
        before_ready=before_ready,
    )


def budget_message(table: GraphTable) -> worker_pb2.CompileBudget:
    """Describes what may be compiled."""
    return worker_pb2.CompileBudget(
        mode=_MODES[table.budget.mode],
        room=table.room,
        max_graphs=table.budget.max_graphs,
        memory_bytes=memory_bytes(),
        max_memory_bytes=table.budget.max_memory_bytes,
        threads=table.threads,
        exhausted=table.exhausted,
    )

"""The worker's state as values, for routing and for metrics."""

import time
from collections.abc import Iterable

from shaperouter_service.graphs import Graph, GraphState, GraphTable, memory_bytes
from shaperouter_service.models import EncoderDecoder, Model
from shaperouter_service.models.call_model import CallModel
from shaperouter_service.routing.call_ladders import CallLadders, ServedCall
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.served_model import ModelKind, ServedModel
from shaperouter_service.routing.snapshots import BudgetReport, GraphReport, LaneReport
from shaperouter_service.worker.scheduler import LaneScheduler


def describe_model(
    model: Model, ladders: Ladders, lanes: Iterable[LaneScheduler], *, kernels: str
) -> ServedModel:
    """Describes a model, without the facts that only a router knows."""
    return ServedModel(
        name=model.name,
        family=model.family.name,
        vocab_size=model.family.vocab_size,
        max_length=model.family.max_length,
        default_options=model.default_options,
        default_max_length=model.default_max_length,
        default_min_length=model.default_min_length,
        dtype=model.dtype.name,
        weight_dtype=model.weight_dtype.name,
        kernels=kernels,
        parameters=model.parameters,
        weight_bytes=model.weight_bytes,
        kv_cache_bytes=sum(lane.cache_bytes for lane in lanes),
        kv_cache_bytes_per_token=model.kv_cache_bytes_per_token,
        slots=ladders.lane(1).decode_rows.maximum,
        ladders=ladders,
        kind=_kind(model),
        max_source_length=model.family.max_source_length,
        encoder_weight_bytes=model.encoder_weight_bytes,
        decoder_start_token_id=model.decoder_start_token_id,
        transcripts=None if model.transcripts is None else model.transcripts.settings,
    )


def describe_call_model(model: CallModel, ladders: CallLadders, *, kernels: str) -> ServedModel:
    """Describes a model that is called once, without what only a router knows."""
    return ServedModel(
        name=model.name,
        family=model.family,
        kind=model.kind,
        vocab_size=model.vocab_size,
        token_types=model.token_types,
        text_prompt=model.text_prompt,
        lowercases_text=model.lowercases_text,
        max_length=model.max_length,
        call=ServedCall(
            spec=model.spec, ladders=ladders, compiled=model.compiled, labels=model.labels
        ),
        dtype=model.dtype.name,
        weight_dtype=model.weight_dtype.name,
        kernels=kernels if model.weights.is_packed else "",
        parameters=model.parameters,
        weight_bytes=model.weight_bytes,
    )


def _kind(model: Model) -> ModelKind:
    if model.transcripts is not None:
        return ModelKind.TRANSCRIBER
    if isinstance(model.family, EncoderDecoder):
        return ModelKind.ENCODER_DECODER
    return ModelKind.DECODER


def report_lane(lane: LaneScheduler) -> LaneReport:
    """Describes the load of a lane."""
    backlog = lane.backlog
    return LaneReport(
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
        proposed_tokens=sum(lane.proposed_tokens),
        accepted_tokens=sum(lane.accepted_tokens),
        draft_proposed_tokens=lane.proposed_tokens.draft,
        draft_accepted_tokens=lane.accepted_tokens.draft,
        align_padding_tokens=lane.reader.align_padding_tokens,
        score_padding_tokens=lane.reader.score_padding_tokens,
    )


def report_graph(
    graph: Graph, worker: str, *, left_seconds: float, before_ready: bool
) -> GraphReport:
    """Describes a graph.

    Args:
        graph: The graph.
        worker: Name of the worker.
        left_seconds: Expected time until it is ready.
        before_ready: Whether the worker makes it before it is ready to serve.
    """
    now = time.monotonic()
    failed = graph.state is GraphState.FAILED
    return GraphReport(
        signature=graph.signature,
        worker=worker,
        state=graph.state,
        traces=graph.traces,
        compiles=graph.compiles,
        loads=graph.loads,
        failures=graph.failures,
        trace_seconds=graph.trace_seconds,
        compile_seconds=graph.compile_seconds.report(),
        load_seconds=graph.load_seconds,
        make_seconds=graph.make_seconds,
        stall_seconds=graph.stall_seconds.report(),
        device_seconds=graph.device_seconds.report(),
        overhead_seconds=graph.overhead_seconds,
        error=graph.error,
        # Routers refuse requests because of it, and the process may have been stopped in one call.
        step_seconds=0.0 if graph.best_step_seconds is None else graph.step_seconds or 0.0,
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


def report_budget(table: GraphTable) -> BudgetReport:
    """Describes what the worker may compile."""
    return BudgetReport(
        mode=table.budget.mode,
        room=table.room,
        max_graphs=table.budget.max_graphs,
        memory_bytes=memory_bytes(),
        max_memory_bytes=table.budget.max_memory_bytes,
        threads=table.threads,
        exhausted=table.exhausted,
    )

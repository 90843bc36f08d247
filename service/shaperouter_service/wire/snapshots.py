"""Snapshots of workers and their messages."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from shaperouter.v1 import worker_pb2
from shaperouter_service.routing.snapshots import (
    BudgetReport,
    CompileMode,
    LaneReport,
    Snapshot,
    StartTimes,
)
from shaperouter_service.wire.graphs import graph_from_message, graph_to_message
from shaperouter_service.wire.models import model_from_message, model_to_message

_MODE_TO_MESSAGE: Mapping[CompileMode, worker_pb2.CompileMode] = {
    CompileMode.LAZY: worker_pb2.COMPILE_MODE_LAZY,
    CompileMode.WARM: worker_pb2.COMPILE_MODE_WARM,
    CompileMode.FROZEN: worker_pb2.COMPILE_MODE_FROZEN,
}
_MODE_FROM_MESSAGE = {message: mode for mode, message in _MODE_TO_MESSAGE.items()}


def snapshot_to_message(snapshot: Snapshot) -> worker_pb2.WatchResponse:
    """The message of a snapshot."""
    start = snapshot.start
    return worker_pb2.WatchResponse(
        worker=snapshot.worker,
        incarnation=snapshot.incarnation,
        device=snapshot.device,
        models=map(model_to_message, snapshot.models),
        graphs=map(graph_to_message, snapshot.graphs),
        lanes=map(_lane_to_message, snapshot.lanes),
        compile_queue_depth=snapshot.compile_queue_depth,
        warm=snapshot.warm,
        budget=_budget_to_message(snapshot.budget),
        start=worker_pb2.StartTimes(
            import_seconds=start.import_seconds,
            weights_seconds=start.weights_seconds,
            first_cover_seconds=start.first_cover_seconds,
            warm_seconds=start.warm_seconds,
        ),
    )


def snapshot_from_message(message: worker_pb2.WatchResponse) -> Snapshot:
    """The snapshot of a message."""
    return Snapshot(
        worker=message.worker,
        incarnation=message.incarnation,
        device=message.device,
        models=tuple(map(model_from_message, message.models)),
        graphs=tuple(map(graph_from_message, message.graphs)),
        lanes=tuple(map(_lane_from_message, message.lanes)),
        compile_queue_depth=message.compile_queue_depth,
        warm=message.warm,
        budget=_budget_from_message(message.budget),
        start=_start_from_message(message.start),
    )


def _lane_to_message(lane: LaneReport) -> worker_pb2.Lane:
    return worker_pb2.Lane(
        model=lane.model,
        beams=lane.beams,
        active_slots=lane.active_slots,
        total_slots=lane.total_slots,
        queued=lane.queued,
        backlog_tokens=lane.backlog_tokens,
        backlog_prompts=lane.backlog_prompts,
        backlog_prompt_tokens=lane.backlog_prompt_tokens,
        backlog_sources=lane.backlog_sources,
        backlog_source_tokens=lane.backlog_source_tokens,
        encode_padding_tokens=lane.encode_padding_tokens,
        prefill_padding_tokens=lane.prefill_padding_tokens,
        decode_padding_tokens=lane.decode_padding_tokens,
        align_padding_tokens=lane.align_padding_tokens,
    )


def _lane_from_message(message: worker_pb2.Lane) -> LaneReport:
    return LaneReport(
        model=message.model,
        beams=message.beams,
        active_slots=message.active_slots,
        total_slots=message.total_slots,
        queued=message.queued,
        backlog_tokens=message.backlog_tokens,
        backlog_prompts=message.backlog_prompts,
        backlog_prompt_tokens=message.backlog_prompt_tokens,
        backlog_sources=message.backlog_sources,
        backlog_source_tokens=message.backlog_source_tokens,
        encode_padding_tokens=message.encode_padding_tokens,
        prefill_padding_tokens=message.prefill_padding_tokens,
        decode_padding_tokens=message.decode_padding_tokens,
        align_padding_tokens=message.align_padding_tokens,
    )


def _budget_to_message(budget: BudgetReport) -> worker_pb2.CompileBudget:
    return worker_pb2.CompileBudget(
        mode=_MODE_TO_MESSAGE[budget.mode],
        room=budget.room,
        max_graphs=budget.max_graphs,
        memory_bytes=budget.memory_bytes,
        max_memory_bytes=budget.max_memory_bytes,
        threads=budget.threads,
        exhausted=budget.exhausted,
    )


def _budget_from_message(message: worker_pb2.CompileBudget) -> BudgetReport:
    return BudgetReport(
        mode=_MODE_FROM_MESSAGE[message.mode],
        room=message.room,
        max_graphs=message.max_graphs,
        memory_bytes=message.memory_bytes,
        max_memory_bytes=message.max_memory_bytes,
        threads=message.threads,
        exhausted=message.exhausted,
    )


def _start_from_message(message: worker_pb2.StartTimes) -> StartTimes:
    names: list[Any] = [field.name for field in fields(StartTimes)]
    return StartTimes(**{name: getattr(message, name) for name in names if message.HasField(name)})

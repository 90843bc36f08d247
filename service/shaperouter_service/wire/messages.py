"""Conversion of signatures, ladders, decisions and settings to and from messages."""

from collections.abc import Mapping

from shaperouter.v1 import generation_pb2, graph_pb2, model_pb2, signature_pb2
from shaperouter_service.routing.decision import Decision
from shaperouter_service.routing.ladders import EncoderLadders, Ladder, Ladders, LaneLadders
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.views import GraphState
from shaperouter_service.speech.transcription import Task, TranscriptSettings, TranscriptTokens
from shaperouter_service.speech.transcription.segments import FRAMES_PER_SECOND

_TO_PROTO: Mapping[GraphKind, signature_pb2.GraphKind] = {
    GraphKind.ENCODE: signature_pb2.GRAPH_KIND_ENCODE,
    GraphKind.PREFILL: signature_pb2.GRAPH_KIND_PREFILL,
    GraphKind.DECODE: signature_pb2.GRAPH_KIND_DECODE,
    GraphKind.ALIGN: signature_pb2.GRAPH_KIND_ALIGN,
}
_FROM_PROTO = {message: kind for kind, message in _TO_PROTO.items()}

STATES: Mapping[GraphState, graph_pb2.GraphState] = {
    GraphState.COLD: graph_pb2.GRAPH_STATE_COLD,
    GraphState.QUEUED: graph_pb2.GRAPH_STATE_QUEUED,
    GraphState.TRACING: graph_pb2.GRAPH_STATE_TRACING,
    GraphState.COMPILING: graph_pb2.GRAPH_STATE_COMPILING,
    GraphState.READY: graph_pb2.GRAPH_STATE_READY,
    GraphState.FAILED: graph_pb2.GRAPH_STATE_FAILED,
}
STATES_FROM_PROTO = {message: state for state, message in STATES.items()}


def signature_to_proto(signature: Signature) -> signature_pb2.Signature:
    """The message of a signature."""
    return signature_pb2.Signature(
        model=signature.model,
        kind=_TO_PROTO[signature.kind],
        rows=signature.rows,
        length=signature.length,
        beams=signature.beams,
    )


def signature_from_proto(message: signature_pb2.Signature) -> Signature:
    """The signature of a message."""
    return Signature(
        model=message.model,
        kind=_FROM_PROTO[message.kind],
        rows=message.rows,
        length=message.length,
        beams=message.beams,
    )


def route_to_proto(decision: Decision) -> generation_pb2.Route:
    """The message of a decision."""
    return generation_pb2.Route(
        options=[
            generation_pb2.RouteOption(
                worker=option.worker,
                encode=signature_to_proto(option.encode) if option.encode else None,
                prefill=signature_to_proto(option.prefill) if option.prefill else None,
                decode=signature_to_proto(option.decode),
                queue_seconds=option.queue_seconds,
                stall_seconds=option.stall_seconds,
                prefill_seconds=option.prefill_seconds,
                decode_seconds=option.decode_seconds,
                total_seconds=option.total_seconds,
            )
            for option in decision.options
        ]
    )


def ladders_to_proto(ladders: Ladders) -> model_pb2.Ladders:
    """The message of ladders."""
    message = model_pb2.Ladders(
        prefill_lengths=ladders.prefill_lengths.rungs,
        prefill_rows=ladders.prefill_rows.rungs,
        prefill_batch_tokens=ladders.prefill_batch_tokens,
        prefill_piece=ladders.prefill_piece,
        lanes=[
            model_pb2.LaneLadders(
                beams=lane.beams,
                decode_rows=lane.decode_rows.rungs,
                decode_lengths=lane.decode_lengths.rungs,
            )
            for lane in ladders.lanes
        ],
    )
    encoder = ladders.encoder
    if encoder is not None:
        message.encode_lengths.extend(encoder.lengths.rungs)
        message.encode_rows.extend(encoder.rows.rungs)
        message.encode_batch_tokens = encoder.batch_tokens
        message.has_whole_source = encoder.has_whole_source
        if encoder.align_lengths is not None:
            message.align_lengths.extend(encoder.align_lengths.rungs)
    return message


def ladders_from_proto(message: model_pb2.Ladders) -> Ladders:
    """The ladders of a message."""
    return Ladders(
        prefill_lengths=Ladder(tuple(message.prefill_lengths)),
        prefill_rows=Ladder(tuple(message.prefill_rows)),
        prefill_batch_tokens=message.prefill_batch_tokens,
        prefill_piece=message.prefill_piece,
        lanes=tuple(
            LaneLadders(
                beams=lane.beams,
                decode_rows=Ladder(tuple(lane.decode_rows)),
                decode_lengths=Ladder(tuple(lane.decode_lengths)),
            )
            for lane in message.lanes
        ),
        encoder=EncoderLadders(
            lengths=Ladder(tuple(message.encode_lengths)),
            rows=Ladder(tuple(message.encode_rows)),
            batch_tokens=message.encode_batch_tokens,
            has_whole_source=message.has_whole_source,
            align_lengths=Ladder(tuple(message.align_lengths)) if message.align_lengths else None,
        )
        if message.encode_lengths
        else None,
    )


def transcripts_to_proto(settings: TranscriptSettings) -> model_pb2.TranscriptSettings:
    """The message of a model's transcript settings."""
    tokens = settings.tokens
    return model_pb2.TranscriptSettings(
        window_seconds=settings.window_frames / FRAMES_PER_SECOND,
        mel_bands=settings.mel_bands,
        language_token_ids=tokens.languages,
        task_token_ids={task.value: token for task, token in tokens.tasks.items()},
        end_token_id=tokens.end,
        start_token_id=tokens.start,
        previous_token_id=tokens.previous,
        no_speech_token_id=tokens.no_speech,
        no_timestamps_token_id=tokens.no_timestamps,
        last_initial_timestamp_token_id=settings.last_initial_timestamp,
        suppressed_token_ids=settings.suppressed,
        begin_suppressed_token_ids=settings.begin_suppressed,
    )


def transcripts_from_proto(message: model_pb2.TranscriptSettings) -> TranscriptSettings:
    """A model's transcript settings from their message."""
    return TranscriptSettings(
        tokens=TranscriptTokens(
            end=message.end_token_id,
            start=message.start_token_id,
            languages=dict(message.language_token_ids),
            tasks={Task(name): token for name, token in message.task_token_ids.items()},
            previous=message.previous_token_id,
            no_speech=message.no_speech_token_id,
            no_timestamps=message.no_timestamps_token_id,
        ),
        suppressed=tuple(message.suppressed_token_ids),
        begin_suppressed=tuple(message.begin_suppressed_token_ids),
        last_initial_timestamp=message.last_initial_timestamp_token_id,
        mel_bands=message.mel_bands,
        window_frames=round(message.window_seconds * FRAMES_PER_SECOND),
    )

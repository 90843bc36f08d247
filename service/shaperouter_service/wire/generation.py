"""Generations and their messages."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from shaperouter.v1 import generation_pb2
from shaperouter_service.generation.events import (
    Completed,
    Completion,
    Delta,
    Generation,
    GenerationEvent,
    SequenceEnd,
)
from shaperouter_service.generation.inputs import Input
from shaperouter_service.generation.request import GenerationRequest
from shaperouter_service.generation.run_events import Stalled
from shaperouter_service.wire.decisions import decision_to_message
from shaperouter_service.wire.options import options_from_message
from shaperouter_service.wire.run_events import (
    FINISH_REASON_TO_MESSAGE,
    graph_use_to_message,
    logprobs_to_message,
    stall_to_message,
)

GenerateAny: TypeAlias = generation_pb2.GenerateRequest | generation_pb2.GenerateStreamRequest


def generation_from_message(message: GenerateAny) -> GenerationRequest:
    """The request of a message."""
    return GenerationRequest(
        model=message.model,
        input=_input(message, "text", "token_ids"),
        decoder_input=_input(message, "decoder_text", "decoder_token_ids"),
        options=options_from_message(message.options),
        explain=message.explain,
        reads_along=isinstance(message, generation_pb2.GenerateStreamRequest),
    )


def generation_event_to_message(event: GenerationEvent) -> generation_pb2.GenerateStreamResponse:
    """The message of a generation's event."""
    match event:
        case Delta():
            return generation_pb2.GenerateStreamResponse(
                delta=generation_pb2.Delta(
                    sequence=event.sequence,
                    text=event.text,
                    token_ids=event.token_ids,
                    logprobs=logprobs_to_message(event.logprobs),
                )
            )
        case Stalled():
            return generation_pb2.GenerateStreamResponse(stall=stall_to_message(event))
        case Completed():
            return generation_pb2.GenerateStreamResponse(
                completion=generation_pb2.StreamCompletion(
                    sequences=map(_end_to_message, event.sequences),
                    completion=_completion_to_message(event.completion),
                )
            )


def generation_to_message(generation: Generation) -> generation_pb2.GenerateResponse:
    """The message of a generation's result."""
    return generation_pb2.GenerateResponse(
        sequences=[
            generation_pb2.Sequence(
                text=sequence.text,
                token_ids=sequence.token_ids,
                logprobs=logprobs_to_message(sequence.logprobs),
                finish_reason=FINISH_REASON_TO_MESSAGE[sequence.end.finish_reason],
                score=sequence.end.score,
            )
            for sequence in generation.sequences
        ],
        completion=_completion_to_message(generation.completion),
    )


def _input(message: GenerateAny, text_field: Any, ids_field: Any) -> Input:
    text: str | None = getattr(message, text_field) if message.HasField(text_field) else None
    ids: Sequence[int] | None = None
    if message.HasField(ids_field):
        ids = getattr(message, ids_field).ids
    return Input(text_field=text_field, text=text, ids_field=ids_field, token_ids=ids)


def _end_to_message(end: SequenceEnd) -> generation_pb2.SequenceEnd:
    return generation_pb2.SequenceEnd(
        finish_reason=FINISH_REASON_TO_MESSAGE[end.finish_reason], score=end.score
    )


def _completion_to_message(completion: Completion) -> generation_pb2.Completion:
    usage, timings = completion.usage, completion.timings
    return generation_pb2.Completion(
        request_id=completion.request_id,
        model=completion.model,
        seed=completion.seed,
        usage=generation_pb2.Usage(
            prompt_tokens=usage.prompt_tokens,
            padded_prompt_tokens=usage.padded_prompt_tokens,
            source_tokens=usage.source_tokens,
            padded_source_tokens=usage.padded_source_tokens,
            generated_tokens=usage.generated_tokens,
        ),
        timings=generation_pb2.Timings(
            route_seconds=completion.route_seconds,
            queue_seconds=timings.queue_seconds,
            stall_seconds=timings.stall_seconds,
            prefill_seconds=timings.prefill_seconds,
            decode_seconds=timings.decode_seconds,
            time_to_first_token_seconds=completion.time_to_first_token,
            total_seconds=completion.total_seconds,
        ),
        graphs=map(graph_use_to_message, completion.graphs),
        worker=completion.worker,
        routes=map(decision_to_message, completion.routes),
    )

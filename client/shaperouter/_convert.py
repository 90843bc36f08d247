"""Conversion of wire messages to the client's types."""

from collections.abc import Iterable

from shaperouter._enums import by_number
from shaperouter._errors import InternalError
from shaperouter._generation import (
    Delta,
    FinishReason,
    GeneratedSequence,
    Generation,
    GraphUse,
    Route,
    RouteOption,
    Timings,
    TokenLogprob,
    TokenLogprobs,
    Usage,
)
from shaperouter._graph import Graph, GraphState, Histogram
from shaperouter._model import Ladders, LaneLadders, Model, ModelKind
from shaperouter._option_message import options_from_message
from shaperouter._signature import GraphKind, Signature
from shaperouter.v1 import generation_pb2, graph_pb2, model_pb2, signature_pb2

_FINISH_REASONS = by_number(FinishReason, generation_pb2.FinishReason)
_GRAPH_KINDS = by_number(GraphKind, signature_pb2.GraphKind)
_MODEL_KINDS = by_number(ModelKind, model_pb2.ModelKind)
_GRAPH_STATES = by_number(GraphState, graph_pb2.GraphState)


def finish_reason(value: generation_pb2.FinishReason) -> FinishReason:
    """The finish reason, or UNKNOWN if the service is newer than this client."""
    return _FINISH_REASONS.get(value, FinishReason.UNKNOWN)


def signature(message: signature_pb2.Signature) -> Signature:
    """A signature."""
    return Signature(
        model=message.model,
        kind=_GRAPH_KINDS.get(message.kind, GraphKind.UNKNOWN),
        rows=message.rows,
        length=message.length,
        beams=message.beams,
    )


def graph_use(message: generation_pb2.GraphUse) -> GraphUse:
    """The calls of one graph."""
    return GraphUse(
        asked=signature(message.asked),
        served=signature(message.served),
        calls=message.calls,
        device_seconds=message.device_seconds,
    )


def delta(message: generation_pb2.Delta) -> Delta:
    """New tokens."""
    return Delta(
        text=message.text,
        token_ids=tuple(message.token_ids),
        sequence=message.sequence,
        logprobs=logprobs(message.logprobs),
    )


def logprobs(messages: Iterable[generation_pb2.TokenLogprobs]) -> tuple[TokenLogprobs, ...]:
    """The log-probabilities at new tokens."""
    return tuple(
        TokenLogprobs(chosen=_logprob(each.chosen), top=tuple(map(_logprob, each.top)))
        for each in messages
    )


def score(message: generation_pb2.Sequence | generation_pb2.SequenceEnd) -> float | None:
    """A sequence's score, if it has one from beam search."""
    return message.score if message.HasField("score") else None


def generation(
    sequences: tuple[GeneratedSequence, ...], completion: generation_pb2.Completion
) -> Generation:
    """A generation, from its sequences and its completion."""
    usage, timings = completion.usage, completion.timings
    return Generation(
        sequences=sequences,
        request_id=completion.request_id,
        model=completion.model,
        seed=completion.seed,
        usage=Usage(
            prompt_tokens=usage.prompt_tokens,
            padded_prompt_tokens=usage.padded_prompt_tokens,
            generated_tokens=usage.generated_tokens,
            source_tokens=usage.source_tokens,
            padded_source_tokens=usage.padded_source_tokens,
        ),
        timings=Timings(
            route_seconds=timings.route_seconds,
            queue_seconds=timings.queue_seconds,
            stall_seconds=timings.stall_seconds,
            prefill_seconds=timings.prefill_seconds,
            decode_seconds=timings.decode_seconds,
            time_to_first_token_seconds=timings.time_to_first_token_seconds,
            total_seconds=timings.total_seconds,
        ),
        graphs=tuple(map(graph_use, completion.graphs)),
        worker=completion.worker,
        routes=tuple(map(_route, completion.routes)),
    )


def response(message: generation_pb2.GenerateResponse) -> Generation:
    """The answer of ``Generate``.

    Raises:
        InternalError: The answer has no sequence.
    """
    if not message.sequences:
        raise InternalError(
            "the service sent an answer without a sequence",
            request_id=message.completion.request_id,
        )
    sequences = tuple(
        GeneratedSequence(
            text=sequence.text,
            token_ids=tuple(sequence.token_ids),
            finish_reason=finish_reason(sequence.finish_reason),
            score=score(sequence),
            logprobs=logprobs(sequence.logprobs),
        )
        for sequence in message.sequences
    )
    return generation(sequences, message.completion)


def model(message: model_pb2.Model) -> Model:
    """A served model."""
    ladders = message.ladders
    return Model(
        name=message.name,
        family=message.family,
        tokenizer=message.tokenizer,
        vocab_size=message.vocab_size,
        max_length=message.max_length,
        default_options=options_from_message(message.default_options),
        dtype=message.dtype,
        parameters=message.parameters,
        weight_bytes=message.weight_bytes,
        kv_cache_bytes=message.kv_cache_bytes,
        slots=message.slots,
        ladders=Ladders(
            prefill_lengths=tuple(ladders.prefill_lengths),
            lanes=tuple(
                LaneLadders(
                    beams=lane.beams,
                    decode_rows=tuple(lane.decode_rows),
                    decode_lengths=tuple(lane.decode_lengths),
                )
                for lane in ladders.lanes
            ),
            prefill_rows=tuple(ladders.prefill_rows),
            prefill_batch_tokens=ladders.prefill_batch_tokens,
            encode_lengths=tuple(ladders.encode_lengths),
            encode_rows=tuple(ladders.encode_rows),
            encode_batch_tokens=ladders.encode_batch_tokens,
            align_lengths=tuple(ladders.align_lengths),
        ),
        ready_workers=message.ready_workers,
        kind=_MODEL_KINDS.get(message.kind, ModelKind.UNKNOWN),
        max_source_length=message.max_source_length,
        languages=tuple(sorted(message.transcripts.language_token_ids)),
        window_seconds=message.transcripts.window_seconds,
        weight_dtype=message.weight_dtype,
        kernels=message.kernels,
        kv_cache_bytes_per_token=message.kv_cache_bytes_per_token,
        characters_per_token=message.characters_per_token,
    )


def graph(message: graph_pb2.Graph) -> Graph:
    """One signature on one worker."""
    return Graph(
        signature=signature(message.signature),
        worker=message.worker,
        state=_GRAPH_STATES.get(message.state, GraphState.UNKNOWN),
        traces=message.traces,
        compiles=message.compiles,
        failures=message.failures,
        trace_seconds=message.trace_seconds,
        compile_seconds=_histogram(message.compile_seconds),
        stall_seconds=_histogram(message.stall_seconds),
        device_seconds=_histogram(message.device_seconds),
        error=message.error,
        loads=message.loads,
        load_seconds=message.load_seconds,
        step_seconds=message.step_seconds,
        missed_seconds=message.missed_seconds,
        padded_seconds=message.padded_seconds,
        state_seconds=message.state_seconds,
        retry_seconds=message.retry_seconds,
        left_seconds=message.left_seconds,
        before_ready=message.before_ready,
    )


def _route(message: generation_pb2.Route) -> Route:
    return Route(
        options=tuple(
            RouteOption(
                worker=option.worker,
                encode=signature(option.encode) if option.HasField("encode") else None,
                prefill=signature(option.prefill) if option.HasField("prefill") else None,
                decode=signature(option.decode),
                queue_seconds=option.queue_seconds,
                stall_seconds=option.stall_seconds,
                prefill_seconds=option.prefill_seconds,
                decode_seconds=option.decode_seconds,
                total_seconds=option.total_seconds,
            )
            for option in message.options
        )
    )


def _logprob(message: generation_pb2.TokenLogprob) -> TokenLogprob:
    return TokenLogprob(token_id=message.token_id, logprob=message.logprob)


def _histogram(message: graph_pb2.Histogram) -> Histogram:
    return Histogram(bounds=tuple(message.bounds), counts=tuple(message.counts), sum=message.sum)

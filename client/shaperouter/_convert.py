"""Conversion of wire messages to the client's types."""

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import Message

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
from shaperouter._model import (
    Axis,
    CallSpec,
    DataType,
    Ladders,
    LaneLadders,
    Model,
    ModelKind,
    TensorSpec,
)
from shaperouter._option_message import options_from_message
from shaperouter._signature import GraphKind, Signature
from shaperouter.v1 import generation_pb2, graph_pb2, inference_pb2, model_pb2, signature_pb2

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_DataclassT = TypeVar("_DataclassT", bound="DataclassInstance")

_FINISH_REASONS = by_number(FinishReason, generation_pb2.FinishReason)
_GRAPH_KINDS = by_number(GraphKind, signature_pb2.GraphKind)
_DATA_TYPES = by_number(DataType, inference_pb2.DataType)
_MODEL_KINDS = by_number(ModelKind, model_pb2.ModelKind)
_GRAPH_STATES = by_number(GraphState, graph_pb2.GraphState)


def copy_fields(kind: type[_DataclassT], message: Message, /, **converted: Any) -> _DataclassT:
    """Makes a dataclass from the message's fields of the same names.

    Args:
        kind: The dataclass.
        message: The message.
        **converted: The other fields of the dataclass.
    """
    names = {field.name for field in dataclasses.fields(kind)} - converted.keys()
    return kind(**{name: getattr(message, name) for name in names}, **converted)


def finish_reason(value: generation_pb2.FinishReason) -> FinishReason:
    """The finish reason, or UNKNOWN if the service is newer than this client."""
    return _FINISH_REASONS.get(value, FinishReason.UNKNOWN)


def signature(message: signature_pb2.Signature) -> Signature:
    """A signature."""
    kind = _GRAPH_KINDS.get(message.kind, GraphKind.UNKNOWN)
    return copy_fields(
        Signature,
        message,
        kind=kind,
        further=tuple(message.further),
        exact=tuple(message.exact),
    )


def graph_use(message: generation_pb2.GraphUse) -> GraphUse:
    """The calls of one graph."""
    asked, served = signature(message.asked), signature(message.served)
    return copy_fields(GraphUse, message, asked=asked, served=served)


def delta(message: generation_pb2.Delta) -> Delta:
    """New tokens."""
    return copy_fields(
        Delta, message, token_ids=tuple(message.token_ids), logprobs=logprobs(message.logprobs)
    )


def logprobs(messages: Iterable[generation_pb2.TokenLogprobs]) -> tuple[TokenLogprobs, ...]:
    """The log-probabilities at tokens."""
    return tuple(
        TokenLogprobs(chosen=_logprob(each.chosen), top=tuple(map(_logprob, each.top)))
        for each in messages
    )


def score(message: generation_pb2.Sequence | generation_pb2.SequenceEnd) -> float | None:
    """A sequence's score, if it has one from beam search."""
    return message.score if message.HasField("score") else None


def generation(
    sequences: tuple[GeneratedSequence, ...],
    completion: generation_pb2.Completion,
    prompt_logprobs: tuple[TokenLogprobs, ...],
) -> Generation:
    """A generation, from its sequences, its completion and the prompt's log-probabilities."""
    return copy_fields(
        Generation,
        completion,
        sequences=sequences,
        prompt_logprobs=prompt_logprobs,
        usage=copy_fields(Usage, completion.usage),
        timings=copy_fields(Timings, completion.timings),
        graphs=tuple(map(graph_use, completion.graphs)),
        routes=tuple(map(route, completion.routes)),
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
        copy_fields(
            GeneratedSequence,
            sequence,
            token_ids=tuple(sequence.token_ids),
            finish_reason=finish_reason(sequence.finish_reason),
            score=score(sequence),
            logprobs=logprobs(sequence.logprobs),
        )
        for sequence in message.sequences
    )
    return generation(sequences, message.completion, logprobs(message.prompt_logprobs))


def model(message: model_pb2.Model) -> Model:
    """A served model."""
    ladders, transcripts = message.ladders, message.transcripts
    return copy_fields(
        Model,
        message,
        default_options=options_from_message(message.default_options),
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
        call=call_spec(message.call) if message.HasField("call") else None,
        kind=_MODEL_KINDS.get(message.kind, ModelKind.UNKNOWN),
        languages=tuple(sorted(transcripts.language_token_ids)),
        window_seconds=transcripts.window_seconds,
        targets={target.model: target.share for target in message.targets},
    )


def call_spec(message: model_pb2.CallSpec) -> CallSpec:
    """How a model that answers once is called."""
    return CallSpec(
        inputs=tuple(map(_tensor_spec, message.inputs)),
        outputs=tuple(map(_tensor_spec, message.outputs)),
        batch=_axis(message.batch) if message.HasField("batch") else None,
        axes=tuple(map(_axis, message.axes)),
        compiled=message.compiled,
        labels=tuple(message.labels),
    )


def _tensor_spec(message: model_pb2.TensorSpec) -> TensorSpec:
    return TensorSpec(
        name=message.name,
        dtype=_DATA_TYPES.get(message.dtype, DataType.UNKNOWN),
        shape=tuple(None if size < 0 else size for size in message.shape),
    )


def _axis(message: model_pb2.Axis) -> Axis:
    return Axis(
        name=message.name,
        inputs=dict(message.inputs),
        outputs=dict(message.outputs),
        ladder=tuple(message.ladder),
    )


def graph(message: graph_pb2.Graph) -> Graph:
    """One signature on one worker."""
    return copy_fields(
        Graph,
        message,
        signature=signature(message.signature),
        state=_GRAPH_STATES.get(message.state, GraphState.UNKNOWN),
        compile_seconds=_histogram(message.compile_seconds),
        stall_seconds=_histogram(message.stall_seconds),
        device_seconds=_histogram(message.device_seconds),
    )


def route(message: generation_pb2.Route) -> Route:
    """The options for a request."""
    return Route(
        options=tuple(
            copy_fields(
                RouteOption,
                option,
                encode=signature(option.encode) if option.HasField("encode") else None,
                prefill=signature(option.prefill) if option.HasField("prefill") else None,
                decode=signature(option.decode) if option.HasField("decode") else None,
                call=signature(option.call) if option.HasField("call") else None,
            )
            for option in message.options
        )
    )


def _logprob(message: generation_pb2.TokenLogprob) -> TokenLogprob:
    return copy_fields(TokenLogprob, message)


def _histogram(message: graph_pb2.Histogram) -> Histogram:
    return Histogram(bounds=tuple(message.bounds), counts=tuple(message.counts), sum=message.sum)

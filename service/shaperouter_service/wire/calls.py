"""Calls of models that answer once, how such models are called, and their messages."""

from shaperouter.v1 import inference_pb2, model_pb2, worker_pb2
from shaperouter_service.inference.calls import (
    InferenceRequest,
    InferenceResult,
    WorkerCall,
    WorkerResult,
)
from shaperouter_service.routing.call_ladders import AxisLadder, CallLadders, ServedCall
from shaperouter_service.routing.ladder import Ladder
from shaperouter_service.tensors.specs import Axis, CallSpec, TensorSpec
from shaperouter_service.wire.decisions import DECISIONS
from shaperouter_service.wire.tensors import tensors_codec, tensors_to_messages
from shaperouter_service.wire.translation import Codec, Translation

# Header of a worker's answer to a suspect, sent right before the suspect is computed alone.
ISOLATED_KEY = "isolated"

_SPECS = Translation(
    TensorSpec,
    model_pb2.TensorSpec,
    codecs={
        "shape": Codec(
            lambda shape: [-1 if size is None else size for size in shape],
            lambda shape: tuple(None if size < 0 else size for size in shape),
        )
    },
)


def served_call_to_message(call: ServedCall) -> model_pb2.CallSpec:
    """The message that says how a model is called. The values that pad an axis are not sent."""
    spec, ladders = call.spec, call.ladders
    return model_pb2.CallSpec(
        inputs=map(_SPECS.to_message, spec.inputs),
        outputs=map(_SPECS.to_message, spec.outputs),
        batch=None if spec.batch is None else _axis_to_message(spec.batch, ladders.rows),
        axes=[
            _axis_to_message(axis, ladder.ladder)
            for axis, ladder in zip(spec.axes, ladders.axes, strict=True)
        ],
        compiled=call.compiled,
        labels=call.labels,
    )


def served_call_from_message(message: model_pb2.CallSpec) -> ServedCall:
    """How the model of a message is called."""
    has_batch = message.HasField("batch")
    return ServedCall(
        spec=CallSpec(
            inputs=tuple(map(_SPECS.from_message, message.inputs)),
            outputs=tuple(map(_SPECS.from_message, message.outputs)),
            batch=_axis_from_message(message.batch) if has_batch else None,
            axes=tuple(map(_axis_from_message, message.axes)),
        ),
        ladders=CallLadders(
            rows=_ladder(message.batch),
            axes=tuple(AxisLadder(name=axis.name, ladder=_ladder(axis)) for axis in message.axes),
        ),
        compiled=message.compiled,
        labels=tuple(message.labels),
    )


def _axis_to_message(axis: Axis, ladder: Ladder | None) -> model_pb2.Axis:
    return model_pb2.Axis(
        name=axis.name,
        inputs=axis.inputs,
        outputs=axis.outputs,
        ladder=() if ladder is None else ladder.rungs,
    )


def _axis_from_message(message: model_pb2.Axis) -> Axis:
    return Axis(name=message.name, inputs=dict(message.inputs), outputs=dict(message.outputs))


def _ladder(message: model_pb2.Axis) -> Ladder | None:
    return Ladder(tuple(message.ladder)) if message.ladder else None


_CALLS = Translation(WorkerCall, worker_pb2.CallRequest, codecs={"inputs": tensors_codec("inputs")})
worker_call_to_message = _CALLS.to_message
worker_call_from_message = _CALLS.from_message

_RESULTS = Translation(
    WorkerResult, worker_pb2.CallResponse, codecs={"outputs": tensors_codec("outputs")}
)
worker_result_to_message = _RESULTS.to_message
worker_result_from_message = _RESULTS.from_message

inference_from_message = Translation(
    InferenceRequest,
    inference_pb2.InferRequest,
    names={"truncate": "truncates", "explain": "explains"},
    codecs={"inputs": tensors_codec("inputs")},
).from_message

_metadata_to_message = Translation(
    InferenceResult, inference_pb2.InferMetadata, codecs=DECISIONS
).to_message


def inference_to_message(result: InferenceResult) -> inference_pb2.InferResponse:
    """The message of a result."""
    return inference_pb2.InferResponse(
        outputs=tensors_to_messages(result.outputs), metadata=_metadata_to_message(result)
    )

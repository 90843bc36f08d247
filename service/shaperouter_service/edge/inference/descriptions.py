"""Descriptions of models: their tensors, their configuration, and whether they can be called."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from shaperouter_service.edge.inference.generation_inputs import (
    INPUT_TOKENS,
    JSON_OPTIONS,
    KINDS,
    LISTS,
    OUTPUTS,
    TEXT,
    TYPES,
)
from shaperouter_service.edge.inference.requests import VERSION
from shaperouter_service.edge.inference.stubs import grpc_service_pb2, model_config_pb2
from shaperouter_service.errors import InvalidRequestError, Violation
from shaperouter_service.routing.call_ladders import ServedCall
from shaperouter_service.routing.served_model import ModelKind, ServedModel
from shaperouter_service.serving.inference.labels import output_specs
from shaperouter_service.serving.models import transcribes
from shaperouter_service.telemetry.request_totals import Duration, RequestTotals
from shaperouter_service.tensors.dtypes import DType
from shaperouter_service.tensors.specs import TensorSpec

PLATFORM = "shaperouter"

TensorMetadata = grpc_service_pb2.ModelMetadataResponse.TensorMetadata
ModelIndex = grpc_service_pb2.RepositoryIndexResponse.ModelIndex


class _Tensor(NamedTuple):
    """A tensor: its name, data type and shape, and whether it may be left out."""

    name: str
    dtype: DType
    shape: Sequence[int]
    optional: bool = False


def metadata(model: ServedModel) -> grpc_service_pb2.ModelMetadataResponse:
    """A model's tensors.

    Raises:
        InvalidRequestError: The protocol has no form for what the model does.
    """
    inputs, outputs = _tensors(model)
    return grpc_service_pb2.ModelMetadataResponse(
        name=model.name,
        versions=[VERSION],
        platform=PLATFORM,
        inputs=[TensorMetadata(name=t.name, datatype=t.dtype, shape=t.shape) for t in inputs],
        outputs=[TensorMetadata(name=t.name, datatype=t.dtype, shape=t.shape) for t in outputs],
    )


def configuration(model: ServedModel) -> model_config_pb2.ModelConfig:
    """A model's configuration.

    Raises:
        InvalidRequestError: The protocol has no form for what the model does.
    """
    inputs, outputs = _tensors(model)
    config = model_config_pb2.ModelConfig(
        name=model.name,
        platform=PLATFORM,
        backend=PLATFORM,
        # Only generations may have several responses.
        model_transaction_policy=model_config_pb2.ModelTransactionPolicy(
            decoupled=model.call is None
        ),
    )
    config.parameters["family"].string_value = model.family
    if model.max_length:
        config.parameters["max_length"].string_value = str(model.max_length)
    if model.call is not None:
        _add_batching(config, model.call)
    if config.max_batch_size:
        # The batch is then no dimension of the tensors.
        inputs, outputs = map(_without_batch, (inputs, outputs))
    for tensor in inputs:
        config.input.add(
            name=tensor.name,
            data_type=_data_type(tensor.dtype),
            dims=tensor.shape,
            optional=tensor.optional,
        )
    for tensor in outputs:
        config.output.add(name=tensor.name, data_type=_data_type(tensor.dtype), dims=tensor.shape)
    return config


def _add_batching(config: model_config_pb2.ModelConfig, call: ServedCall) -> None:
    """Says how calls are batched, and what sizes the graphs of each axis have."""
    batch, rows = call.spec.batch, call.ladders.rows
    if batch is not None and rows is not None:
        config.dynamic_batching.preferred_batch_size.extend(rows.rungs)
        tensors = {each.name for each in (*call.spec.inputs, *call.spec.outputs)}
        first = [name for name, at in [*batch.inputs.items(), *batch.outputs.items()] if at == 0]
        if tensors == set(first):
            # Larger requests are served, too, in several calls.
            config.max_batch_size = rows.maximum
    for axis in call.ladders.axes:
        sizes = "exact" if axis.ladder is None else ", ".join(map(str, axis.ladder.rungs))
        config.parameters[f"axes.{axis.name}"].string_value = sizes
    config.parameters["compiled"].string_value = str(call.compiled).lower()


def index_entry(name: str, model: ServedModel | None) -> ModelIndex:
    """Whether a model can be called.

    Args:
        name: Its name.
        model: Its description; None if no worker has loaded it yet.
    """
    if model is None:
        state, reason = "LOADING", "no worker has loaded it yet"
    elif model.ready_workers == 0:
        state, reason = "UNAVAILABLE", "no worker is ready for it"
    else:
        state, reason = "READY", ""
    return ModelIndex(name=name, version=VERSION, state=state, reason=reason)


def unloaded_entry(name: str, progress: str) -> ModelIndex:
    """A model of the repository that is not loaded; `progress` says what is being done."""
    state, reason = ("LOADING", progress) if progress else ("UNAVAILABLE", "it is not loaded")
    return ModelIndex(name=name, version=VERSION, state=state, reason=reason)


def statistics(name: str, totals: RequestTotals) -> grpc_service_pb2.ModelStatistics:
    """The statistics of a model's requests."""
    return grpc_service_pb2.ModelStatistics(
        name=name,
        version=VERSION,
        inference_count=totals.succeeded.count,
        inference_stats=grpc_service_pb2.InferStatistics(
            success=_duration(totals.succeeded),
            fail=_duration(totals.failed),
            queue=_duration(totals.queued),
        ),
    )


def _duration(duration: Duration) -> grpc_service_pb2.StatisticDuration:
    return grpc_service_pb2.StatisticDuration(
        count=duration.count, ns=round(duration.seconds * 1e9)
    )


def _tensors(model: ServedModel) -> tuple[Sequence[_Tensor], Sequence[_Tensor]]:
    if model.call is not None:
        spec = model.call.spec
        reads_text = model.has_tokenizer and model.kind is not ModelKind.FUNCTION
        inputs = [_tensor(each, optional=reads_text) for each in spec.inputs]
        if reads_text:
            inputs.insert(0, _Tensor("text", DType.BYTES, [-1], optional=True))
        return inputs, [_tensor(each) for each in output_specs(model, model.call)]
    if transcribes(model):
        description = (
            f"{model.name} transcribes recordings, which this protocol cannot: use "
            "shaperouter.v1.TranscriptionService"
        )
        raise InvalidRequestError(Violation(field="model", description=description))
    outputs = [
        _Tensor(name, dtype, [1] if name == INPUT_TOKENS else [-1])
        for name, dtype in OUTPUTS.items()
    ]
    return [*_generation_inputs()], outputs


def _tensor(spec: TensorSpec, *, optional: bool = False) -> _Tensor:
    shape = [-1 if size is None else size for size in spec.shape]
    return _Tensor(spec.name, spec.dtype, shape, optional)


def _without_batch(tensors: Sequence[_Tensor]) -> Sequence[_Tensor]:
    return [tensor._replace(shape=tensor.shape[1:]) for tensor in tensors]


def _generation_inputs() -> Iterator[_Tensor]:
    yield _Tensor(TEXT, DType.BYTES, [1])
    yield _Tensor(JSON_OPTIONS, DType.BYTES, [1], optional=True)
    for name, kind in KINDS.items():
        if kind in TYPES:
            yield _Tensor(name, TYPES[kind][0], [-1] if kind in LISTS else [1], optional=True)


def _data_type(dtype: DType) -> Any:
    name = "STRING" if dtype is DType.BYTES else dtype
    return model_config_pb2.DataType.Value(f"TYPE_{name}")

"""Signatures of models: what they take and give, and whether they classify or regress."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from shaperouter_service.edge.tfserving.stubs.tensorflow.core.framework.tensor_shape_pb2 import (
    TensorShapeProto,
)
from shaperouter_service.edge.tfserving.stubs.tensorflow.core.protobuf.meta_graph_pb2 import (
    SignatureDef,
    TensorInfo,
)
from shaperouter_service.edge.tfserving.tensors import data_type
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.serving.inference.labels import output_specs
from shaperouter_service.serving.models import wrong_model
from shaperouter_service.tensors.dtypes import DType
from shaperouter_service.tensors.specs import CallSpec, TensorSpec

PREDICT = "tensorflow/serving/predict"
CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"

# Names of the outputs of such signatures, as TensorFlow gives them.
CLASSES, SCORES = "classes", "scores"
VALUES = "outputs"


def call_spec(model: ServedModel) -> CallSpec:
    """The tensors of a model, as callers see them.

    Raises:
        InvalidRequestError: The model generates tokens, for which the protocol has no form.
    """
    if model.call is None:
        raise wrong_model(model, "is called with tensors")
    return replace(model.call.spec, outputs=tuple(output_specs(model, model.call)))


def signature_of(spec: CallSpec) -> SignatureDef:
    """The signature of a model."""
    return SignatureDef(
        inputs=_infos(spec.inputs), outputs=_infos(spec.outputs), method_name=method_of(spec)
    )


def method_of(spec: CallSpec) -> str:
    """The method of a signature: one that takes serialized examples may classify or regress."""
    if len(spec.inputs) != 1 or not _is(spec.inputs[0], DType.BYTES, 1):
        return PREDICT
    outputs = {each.name: each for each in spec.outputs}
    if outputs.keys() == {VALUES} and _regresses(outputs[VALUES]):
        return REGRESS
    types = {CLASSES: DType.BYTES, SCORES: DType.FP32}
    if outputs and all(
        name in types and _is(each, types[name], 2) for name, each in outputs.items()
    ):
        return CLASSIFY
    return PREDICT


def _regresses(tensor: TensorSpec) -> bool:
    """Whether a tensor may have one value for each example; only calls tell if a size is free."""
    is_column = _is(tensor, DType.FP32, 2) and tensor.shape[1] in (1, None)
    return is_column or _is(tensor, DType.FP32, 1)


def _is(tensor: TensorSpec, dtype: DType, dimensions: int) -> bool:
    return tensor.dtype is dtype and len(tensor.shape) == dimensions


def _infos(tensors: Iterable[TensorSpec]) -> Mapping[str, TensorInfo]:
    return {
        tensor.name: TensorInfo(
            name=f"{tensor.name}:0",
            dtype=data_type(tensor.dtype),
            tensor_shape=TensorShapeProto(
                dim=[TensorShapeProto.Dim(size=-1 if n is None else n) for n in tensor.shape]
            ),
        )
        for tensor in tensors
    }

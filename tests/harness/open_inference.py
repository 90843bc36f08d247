"""Requests of Open Inference."""

from typing import Any

import numpy as np

from shaperouter_service.edge.inference.stubs.grpc_service_pb2 import (
    ModelInferRequest,
    ModelInferResponse,
)
from shaperouter_service.tensors.dtypes import DType

_PARAMETERS = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}
_TYPES = {str: "BYTES", bytes: "BYTES", bool: "BOOL", int: "INT32", float: "FP32"}
_CONTENTS = {
    "BYTES": "bytes_contents",
    "BOOL": "bool_contents",
    "INT32": "int_contents",
    "FP32": "fp32_contents",
}


def infer_request(
    *, outputs: tuple[str, ...] = (), parameters: dict[str, Any] | None = None, **inputs: Any
) -> ModelInferRequest:
    """A request for the model `tiny` with inputs of one element, or of the elements of a list."""
    request = ModelInferRequest(model_name="tiny")
    for name, value in inputs.items():
        values = value if isinstance(value, list) else [value]
        datatype = _TYPES[type(values[0])]
        tensor = request.inputs.add(name=name, datatype=datatype, shape=[len(values)])
        encoded = [each.encode() if isinstance(each, str) else each for each in values]
        getattr(tensor.contents, _CONTENTS[datatype]).extend(encoded)
    for name in outputs:
        request.outputs.add(name=name)
    for name, value in (parameters or {}).items():
        setattr(request.parameters[name], _PARAMETERS[type(value)], value)
    return request


def tensors_of(response: ModelInferResponse) -> dict[str, list[Any]]:
    """The tensors of a response that has them as lists of values."""
    tensors = {}
    for output in response.outputs:
        ((_, values),) = output.contents.ListFields() or ((None, []),)
        assert list(output.shape) == [len(values)]
        decoded = [each.decode() if isinstance(each, bytes) else each for each in values]
        tensors[output.name] = np.array(
            decoded, None if output.datatype == "BYTES" else DType(output.datatype).numpy
        ).tolist()
    return tensors

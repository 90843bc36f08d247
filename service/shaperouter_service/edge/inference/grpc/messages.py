"""Requests and responses as messages."""

from collections.abc import Mapping
from typing import Any

from shaperouter_service.edge.inference.grpc.tensors import (
    Request,
    Response,
    add_tensor,
    has_typed_form,
    tensors_from_request,
)
from shaperouter_service.edge.inference.requests import (
    VERSION,
    InferRequest,
    InferResponse,
    RequestedOutput,
)
from shaperouter_service.edge.inference.stubs import grpc_service_pb2

# The parameter that says whether a response is the last of its request.
FINAL = "triton_final_response"


def request_from_message(message: Request) -> InferRequest:
    """Reads a request.

    Raises:
        InvalidRequestError: A tensor is malformed.
    """
    return InferRequest(
        model=message.model_name,
        version=message.model_version,
        id=message.id,
        inputs=tensors_from_request(message),
        parameters=values_of(message.parameters),
        outputs=[
            RequestedOutput(name=output.name, parameters=tuple(output.parameters))
            for output in message.outputs
        ],
        received_bytes=message.ByteSize(),
    )


def values_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The values of parameters, by name; None for one without a value."""
    choices = {name: each.WhichOneof("parameter_choice") for name, each in parameters.items()}
    return {
        name: getattr(parameters[name], choice) if choice else None
        for name, choice in choices.items()
    }


def message_from_response(response: InferResponse, *, raw: bool) -> Response:
    """The message of a response.

    Args:
        response: The response.
        raw: Whether to write bytes. Half-precision numbers are bytes in any case.
    """
    message = grpc_service_pb2.ModelInferResponse(
        model_name=response.model, model_version=VERSION, id=response.id
    )
    message.parameters[FINAL].bool_param = response.is_final
    raw = raw or not has_typed_form(response.outputs.values())
    for name, array in response.outputs.items():
        add_tensor(message, name, array, raw=raw)
    return message

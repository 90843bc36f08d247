"""Calls of functions and text encoders: tensors in, tensors out."""

from collections.abc import Iterator

from shaperouter_service.edge.inference.answers import FINAL, VERSION
from shaperouter_service.edge.inference.generation_inputs import EMPTY_FINAL
from shaperouter_service.edge.inference.stubs import grpc_service_pb2
from shaperouter_service.edge.inference.tensors import (
    Request,
    Response,
    add_tensor,
    has_typed_form,
    is_raw,
    tensors_from_request,
)
from shaperouter_service.errors import InvalidRequestError, Violation, shortened
from shaperouter_service.inference.calls import InferenceRequest, InferenceResult

# Maximum characters of a name from a caller in an error.
_SHOWN = 64


def call_from_request(request: Request) -> InferenceRequest:
    """Reads a call.

    Raises:
        InvalidRequestError: A tensor is malformed, or the request has parameters.
    """
    if violations := [*_parameter_violations(request)]:
        raise InvalidRequestError(*violations)
    return InferenceRequest(
        model=request.model_name,
        inputs=tensors_from_request(request),
        outputs=[output.name for output in request.outputs],
    )


def response_of(result: InferenceResult, request: Request) -> Response:
    """The response to a call, in the form of its request."""
    response = grpc_service_pb2.ModelInferResponse(
        model_name=result.model, model_version=VERSION, id=request.id
    )
    response.parameters[FINAL].bool_param = True
    raw = is_raw(request) or not has_typed_form(iter(result.outputs.values()))
    for name, array in result.outputs.items():
        add_tensor(response, name, array, raw=raw)
    return response


def _parameter_violations(request: Request) -> Iterator[Violation]:
    places = [("parameters", name) for name in request.parameters if name != EMPTY_FINAL]
    places += [
        (f"outputs.{shortened(output.name, _SHOWN)}", name)
        for output in request.outputs
        for name in output.parameters
    ]
    for field, name in places:
        description = f"must have no parameters, got {shortened(name, _SHOWN)!r}"
        yield Violation(field=field, description=description)

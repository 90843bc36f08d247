"""Calls of functions and text encoders: tensors in, tensors out."""

from collections.abc import Iterator

from shaperouter_service.edge.inference.generation_inputs import EMPTY_FINAL
from shaperouter_service.edge.inference.requests import InferRequest, InferResponse
from shaperouter_service.errors import InvalidRequestError, Violation, shortened
from shaperouter_service.inference.calls import InferenceRequest, InferenceResult

# Maximum characters of a name from a caller in an error.
_SHOWN = 64


def call_from_request(request: InferRequest) -> InferenceRequest:
    """Reads a call.

    Raises:
        InvalidRequestError: The request has parameters.
    """
    if violations := [*_parameter_violations(request)]:
        raise InvalidRequestError(*violations)
    return InferenceRequest(
        model=request.model,
        inputs=request.inputs,
        outputs=[output.name for output in request.outputs],
        received_bytes=request.received_bytes,
    )


def response_of(result: InferenceResult, request: InferRequest) -> InferResponse:
    """The response to a call; it has the name that the request gave, which may be an alias."""
    return InferResponse(model=request.model or result.model, id=request.id, outputs=result.outputs)


def _parameter_violations(request: InferRequest) -> Iterator[Violation]:
    places = [("parameters", name) for name in request.parameters if name != EMPTY_FINAL]
    places += [
        (f"outputs.{shortened(output.name, _SHOWN)}", name)
        for output in request.outputs
        for name in output.parameters
    ]
    for field, name in places:
        description = f"must have no parameters, got {shortened(name, _SHOWN)!r}"
        yield Violation(field=field, description=description)

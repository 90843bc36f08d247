"""Bodies of requests: JSON, and after it the binary data of tensors."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from shaperouter_service.edge.http.bodies import json_object
from shaperouter_service.edge.http.errors import HttpError
from shaperouter_service.edge.inference.generation_inputs import TEXT
from shaperouter_service.edge.inference.http.fields import Fields, told
from shaperouter_service.edge.inference.http.json_tensors import array_from_data
from shaperouter_service.edge.inference.raw_tensors import SHOWN, array_from_bytes, dtype_of
from shaperouter_service.edge.inference.requests import Array, InferRequest, RequestedOutput
from shaperouter_service.errors import InvalidRequestError, Violations, shortened
from shaperouter_service.tensors.shapes import check_count, shape_fault

# The header that says how many bytes of a body are JSON; without it, all are.
JSON_LENGTH = "inference-header-content-length"
# Maximum bytes of JSON. Nothing else runs while Python parses it, which takes 0.1 s, the time of a
# chunk, if all of it is numbers.
MAX_JSON_BYTES = 4 * 2**20

# Parameters of tensors that say what form they have.
BINARY_SIZE, BINARY, BINARY_DEFAULT = "binary_data_size", "binary_data", "binary_data_output"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request, and the form of its answer.

    Attributes:
        request: The request.
        binary: Whether to answer with binary data, by the names of outputs.
        binary_by_default: Whether to do so with other outputs.
    """

    request: InferRequest
    binary: Mapping[str, bool]
    binary_by_default: bool

    def is_binary(self, output: str) -> bool:
        """Whether to answer with the binary data of an output."""
        return self.binary.get(output, self.binary_by_default)


def infer_request(body: bytes, json_length: str | None, *, model: str, version: str) -> Asked:
    """Reads a request to run a model.

    Args:
        body: The body.
        json_length: How many bytes of it are JSON; None for all.
        model: Name of the model, from the path.
        version: Its version, from the path; empty for any.

    Raises:
        ServiceError: The body is no such request. Nothing is allocated for tensors that do not fit
            their shapes.
    """
    text, content = _split(body, json_length)
    violations = Violations()
    top = Fields(json_object(text), violations)
    # KServe's client repeats the name.
    if (named := top.take("model_name", str, model)) != model:
        top.refuse("model_name", f"must be {model!r}, as in the path, got {told(named)}")
    request_id = top.take("id", str, "")
    parameters = Fields(top.take("parameters", dict, {}), violations, "parameters")
    by_default = parameters.take(BINARY_DEFAULT, bool, False)
    inputs, asked = top.objects("inputs"), top.objects("outputs")
    check_count(len(inputs), "inputs")
    check_count(len(asked), "outputs")
    tensors = _tensors(inputs, content, violations)
    binary: dict[str, bool] = {}
    outputs = []
    for index, each in enumerate(asked):
        output = Fields(each, violations, f"outputs[{index}]")
        name = output.take("name", str, "")
        if not name:
            output.refuse("name", "must be set")
        given = Fields(output.take("parameters", dict, {}), violations, f"outputs[{index}]")
        binary[name] = given.take(BINARY, bool, by_default)
        outputs.append(RequestedOutput(name=name, parameters=tuple(given.rest())))
        output.end()
    top.end()
    violations.refuse_any()
    return Asked(
        request=InferRequest(
            model=model,
            version=version,
            id=request_id,
            inputs=tensors,
            received_bytes=len(body),
            parameters=parameters.rest(),
            outputs=outputs,
        ),
        binary=binary,
        binary_by_default=by_default,
    )


def generate_request(body: bytes, *, model: str, version: str) -> InferRequest:
    """Reads a request of the generate extension, whose fields are inputs and parameters.

    Args:
        body: The body.
        model: Name of the model, from the path.
        version: Its version, from the path; empty for any.

    Raises:
        ServiceError: The body is not such a request.
    """
    violations = Violations()
    top = Fields(json_object(body), violations)
    request_id = top.take("id", str, "")
    parameters = Fields(top.take("parameters", dict, {}), violations).rest()
    fields = top.rest()
    if TEXT not in {*fields, *parameters}:
        top.refuse(TEXT, "is required")
    violations.refuse_any()
    return InferRequest(
        model=model, version=version, id=request_id, fields=fields, parameters=parameters
    )


def _split(body: bytes, json_length: str | None) -> tuple[bytes, bytes]:
    """The JSON of a body, and the binary data after it."""
    length = len(body)
    if json_length is not None:
        # `int` accepts more, and thousands of digits only after a long time.
        if not (json_length.isascii() and json_length.isdecimal() and len(json_length) < 20):
            shown = shortened(json_length, SHOWN)
            raise InvalidRequestError.of(JSON_LENGTH, f"must be a number of bytes, got {shown!r}")
        length = int(json_length)
        if length > len(body):
            raise InvalidRequestError.of(
                JSON_LENGTH, f"must be at most {len(body)}, the bytes of the body, got {length}"
            )
    if length > MAX_JSON_BYTES:
        raise HttpError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "request_too_large",
            f"the JSON of a request must have at most {MAX_JSON_BYTES} bytes, got {length}; send "
            "large tensors as binary data",
        )
    return body[:length], body[length:]


def _tensors(
    inputs: list[dict[str, Any]], content: bytes, violations: Violations
) -> dict[str, Array]:
    """The tensors by name, as far as nothing is wrong with them."""
    arrays: dict[str, Array] = {}
    offset = 0
    for index, each in enumerate(inputs):
        tensor = Fields(each, violations, f"inputs[{index}]")
        if not (name := tensor.take("name", str, "")):
            tensor.refuse("name", "must be set")
        field = f"inputs.{shortened(name, SHOWN)}" if name else tensor.path
        tensor.path = field
        given = Fields(tensor.take("parameters", dict, {}), violations, field)
        size = given.value(BINARY_SIZE)
        faults: list[str] = []
        for other in given.rest():
            rule = f"must have no parameters but {BINARY_SIZE}"
            violations.add(field, f"{rule}, got {shortened(other, SHOWN)!r}")
        shape = tensor.take("shape", list, [-1])
        datatype = tensor.take("datatype", str, "")
        data = tensor.value("data")
        try:
            raw = None
            if size is not None:
                raw = _binary(content, offset, size)
                offset += len(raw)
            array = _array(datatype, shape, data, raw)
        except ValueError as error:
            faults.append(str(error))
        else:
            if name in arrays:
                faults.append("must occur only once")
            arrays[name] = array
        tensor.end()
        for fault in faults:
            violations.add(field, fault)
    if offset < len(content) and not violations:
        description = (
            f"must have a {BINARY_SIZE} of {len(content)} in all, as many bytes as follow the "
            f"JSON, got {offset}"
        )
        violations.add("inputs", description)
    return arrays


def _binary(content: bytes, offset: int, size: Any) -> bytes:
    left = len(content) - offset
    if type(size) is not int or not 0 <= size <= left:
        raise ValueError(
            f"{BINARY_SIZE} must be from 0 to {left}, the bytes that are left after the JSON, "
            f"got {told(size)}"
        )
    return content[offset : offset + size]


def _array(datatype: str, shape: list[Any], data: Any, raw: bytes | None) -> Array:
    """The elements of a tensor.

    Raises:
        ValueError: Something is wrong with it.
    """
    dtype = dtype_of(datatype)
    # The product of longer integers could have more digits than Python writes.
    if not all(type(size) is int and abs(size) < 2**63 for size in shape):
        raise ValueError("shape must be a list of integers of 64 bits")
    if fault := shape_fault(shape, dtype):
        raise ValueError(fault)
    if raw is None:
        return array_from_data(data, dtype, shape)
    if data is not None:
        raise ValueError(f"must not have data together with {BINARY_SIZE}")
    return array_from_bytes(raw, dtype, shape)

"""Responses as bodies of answers."""

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from shaperouter_service.edge.inference.generation_inputs import PROMPT_LOGPROBS
from shaperouter_service.edge.inference.http.bodies import BINARY, BINARY_SIZE, JSON_LENGTH, Asked
from shaperouter_service.edge.inference.http.json_tensors import data_of, texts_of
from shaperouter_service.edge.inference.raw_tensors import bytes_of
from shaperouter_service.edge.inference.requests import VERSION, InferResponse
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.tensors.dtypes import DType


def infer_answer(response: InferResponse, asked: Asked) -> Response:
    """The answer to a request to run a model.

    Raises:
        InvalidRequestError: JSON has no form for an output that was not requested as binary data.
    """
    outputs: list[str] = []
    contents: list[bytes] = []
    for name, array in response.outputs.items():
        head: dict[str, Any] = {
            "name": name,
            "datatype": DType.of(array),
            "shape": list(array.shape),
        }
        if asked.is_binary(name):
            contents.append(bytes_of(array))
            head["parameters"] = {BINARY_SIZE: len(contents[-1])}
            outputs.append(_json(head))
            continue
        try:
            outputs.append(_with(head, "data", data_of(array)))
        except ValueError as error:
            description = f"must be requested with {BINARY}: {error}"
            raise InvalidRequestError.of(f"outputs.{name}", description) from error
    body = _with(_head(response), "outputs", f"[{','.join(outputs)}]").encode()
    if not contents:
        return Response(body, media_type="application/json")
    return Response(
        b"".join([body, *contents]),
        media_type="application/octet-stream",
        headers={JSON_LENGTH: str(len(body))},
    )


def generate_body(response: InferResponse) -> dict[str, Any]:
    """An answer of the generate extension: each tensor is a field, of one value or a list.

    A tensor with an element for each token is always a list: how many there are is chance.
    """
    body = _head(response)
    for name, array in response.outputs.items():
        values = array.ravel().tolist()
        if DType.of(array) is DType.BYTES:
            values = texts_of(values)
        is_list = name == PROMPT_LOGPROBS or len(values) != 1
        body[name] = values if is_list else values[0]
    return body


def _head(response: InferResponse) -> dict[str, Any]:
    head = {"model_name": response.model, "model_version": VERSION}
    return head | ({"id": response.id} if response.id else {})


def _with(fields: Mapping[str, Any], name: str, value: str) -> str:
    """An object with one more field, whose value is JSON already."""
    return f'{_json(fields)[:-1]},"{name}":{value}}}'


def _json(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))

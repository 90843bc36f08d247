"""The paths of the protocol."""

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from shaperouter_service.edge.http.bodies import json_object, read_body
from shaperouter_service.edge.http.calls import while_connected
from shaperouter_service.edge.http.door import HttpDoor, Path
from shaperouter_service.edge.http.errors import HttpError, retry_hint
from shaperouter_service.edge.http.event_stream import Pieces, event_stream
from shaperouter_service.edge.inference.generation_request import check_size
from shaperouter_service.edge.inference.http.answers import generate_body, infer_answer
from shaperouter_service.edge.inference.http.bodies import (
    JSON_LENGTH,
    Asked,
    generate_request,
    infer_request,
)
from shaperouter_service.edge.inference.http.fields import Fields
from shaperouter_service.edge.inference.http.message_json import json_of
from shaperouter_service.edge.inference.protocol import EXTENSIONS, OpenInference, check_version
from shaperouter_service.edge.inference.requests import InferRequest, InferResponse
from shaperouter_service.edge.offloading import MAX_BYTES_AT_ONCE, translated
from shaperouter_service.errors import ServiceError, Violations, shortened
from shaperouter_service.generation.limits import MAX_TEXT_REQUEST_BYTES
from shaperouter_service.inference.limits import MAX_TENSOR_REQUEST_BYTES
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.core import Core
from shaperouter_service.serving.gate import Gate

# Types of bodies that browsers send to other sites only if those allow it.
_TYPES = ("application/json", "application/octet-stream")

# Paths of features that are not served; over gRPC their methods are unimplemented.
_UNSERVED = (
    "/v2/systemsharedmemory/{rest:path}",
    "/v2/cudasharedmemory/{rest:path}",
    "/v2/trace/setting",
    "/v2/models/{model}/trace/setting",
    "/v2/logging",
)


class Answers:
    """Answers the requests of the protocol's paths."""

    def __init__(self, protocol: OpenInference) -> None:
        """Takes what answers."""
        self._protocol = protocol
        # Large bodies are read one at a time: all need Python's lock, and lists of numbers take
        # many times the memory of their JSON.
        self._reading = asyncio.Lock()

    async def live(self, _: Request, __: Call) -> Response:
        """GET /v2/health/live."""
        return JSONResponse({"live": True})

    async def ready(self, _: Request, __: Call) -> Response:
        """GET /v2/health/ready."""
        is_ready = self._protocol.is_ready
        return JSONResponse({"ready": is_ready}, _health_status(is_ready=is_ready))

    async def model_ready(self, request: Request, _: Call) -> Response:
        """GET /v2/models/{model}/ready."""
        name, version = _target(request)
        is_ready = self._protocol.is_model_ready(name, version)
        return JSONResponse({"name": name, "ready": is_ready}, _health_status(is_ready=is_ready))

    async def server(self, _: Request, __: Call) -> Response:
        """GET /v2."""
        extensions = (*EXTENSIONS, "binary_tensor_data", "generate")
        return JSONResponse(json_of(self._protocol.server(extensions)))

    async def metadata(self, request: Request, _: Call) -> Response:
        """GET /v2/models/{model}."""
        return JSONResponse(json_of(self._protocol.metadata(*_target(request))))

    async def configuration(self, request: Request, _: Call) -> Response:
        """GET /v2/models/{model}/config."""
        return JSONResponse(json_of(self._protocol.configuration(*_target(request))))

    async def statistics(self, request: Request, _: Call) -> Response:
        """GET /v2/models/{model}/stats, or of all models."""
        return JSONResponse(json_of(self._protocol.statistics(*_target(request))))

    async def index(self, request: Request, _: Call) -> Response:
        """POST /v2/repository/index."""
        body = await self._body(request, limit=MAX_TEXT_REQUEST_BYTES)
        violations = Violations()
        fields = Fields(json_object(body) if body else {}, violations)
        only_ready = fields.take("ready", bool, False)
        fields.end()
        violations.refuse_any()
        index = await self._protocol.index(only_ready=only_ready)
        return JSONResponse([json_of(model) for model in index.models])

    async def load(self, request: Request, call: Call) -> Response:
        """POST /v2/repository/models/{model}/load."""
        parameters = await self._parameters(request)
        loading = self._protocol.load(_target(request)[0], "", parameters, call)
        await while_connected(request, loading)
        return Response()

    async def unload(self, request: Request, _: Call) -> Response:
        """POST /v2/repository/models/{model}/unload."""
        parameters = await self._parameters(request)
        await self._protocol.unload(_target(request)[0], "", parameters)
        return Response()

    async def unserved(self, request: Request, _: Call) -> Response:
        """Refuses parts of the protocol that are not served."""
        message = f"{shortened(request.url.path, 64)} is not served"
        raise HttpError(HTTPStatus.NOT_IMPLEMENTED, "unimplemented", message)

    async def infer(self, request: Request, call: Call) -> Response:
        """POST /v2/models/{model}/infer."""
        asked = await self._read_infer(request)
        response = await while_connected(request, self._one(asked.request, call))
        return await translated(response.size, infer_answer, response, asked)

    async def generate(self, request: Request, call: Call) -> Response:
        """POST /v2/models/{model}/generate."""
        asked = await self._read_generate(request)
        return JSONResponse(generate_body(await while_connected(request, self._one(asked, call))))

    async def generate_stream(self, request: Request, call: Call) -> ASGIApp:
        """POST /v2/models/{model}/generate_stream."""
        pieces = self._pieces(await self._read_generate(request), call)
        stream = event_stream(
            pieces, failed=lambda error: [error_body(error) | retry_hint(error)], last=None
        )
        return await while_connected(request, stream)

    async def _read_infer(self, request: Request) -> Asked:
        model, version = _target(request)
        check_version(model, version)
        generates = self._protocol.generates(model, ())
        limit = MAX_TEXT_REQUEST_BYTES if generates else MAX_TENSOR_REQUEST_BYTES
        body = await self._body(request, limit=limit)
        length = request.headers.get(JSON_LENGTH)
        read = partial(infer_request, body, length, model=model, version=version)
        is_large = len(body) > MAX_BYTES_AT_ONCE
        async with self._reading if is_large else contextlib.nullcontext():
            asked = await translated(len(body), read)
        if self._protocol.generates(model, {*asked.request.inputs, *asked.request.parameters}):
            check_size(len(body))
        return asked

    async def _read_generate(self, request: Request) -> InferRequest:
        model, version = _target(request)
        check_version(model, version)
        self._protocol.check_generates(model)
        body = await self._body(request, limit=MAX_TEXT_REQUEST_BYTES)
        read = partial(generate_request, body, model=model, version=version)
        return await translated(len(body), read)

    async def _parameters(self, request: Request) -> dict[str, Any]:
        """The parameters of a request to load or unload a model."""
        body = await self._body(request, limit=MAX_TEXT_REQUEST_BYTES)
        violations = Violations()
        fields = Fields(json_object(body) if body else {}, violations)
        parameters = fields.take("parameters", dict, {})
        fields.end()
        violations.refuse_any()
        return parameters

    async def _body(self, request: Request, *, limit: int) -> bytes:
        """Reads a body.

        Clients of Triton send any type, or none. Browsers name the page that they send a request
        for, which then needs a type that they do not send unasked.
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if "origin" in request.headers and kind not in _TYPES:
            raise HttpError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                f"content-type must be one of {', '.join(_TYPES)} in a request with an origin, "
                f"got {shortened(kind, 64)!r}",
            )
        return await read_body(request, limit=limit)

    async def _one(self, asked: InferRequest, call: Call) -> InferResponse:
        """The only response to a request."""
        responses = self._protocol.responses(asked, call, may_stream=False)
        async with contextlib.aclosing(responses):
            # Reading on ends the request.
            (response,) = [each async for each in responses if each is not None]
        return response

    async def _pieces(self, asked: InferRequest, call: Call) -> Pieces:
        """The bodies of a stream's events."""
        responses = self._protocol.responses(asked, call, may_stream=True)
        async with contextlib.aclosing(responses):
            async for response in responses:
                yield None if response is None else generate_body(response)


def error_body(error: ServiceError) -> dict[str, Any]:
    """The body of an error."""
    return {"error": str(error)}


def _health_status(*, is_ready: bool) -> HTTPStatus:
    """The status of an answer to a probe: the protocol answers 4xx if it is not ready."""
    return HTTPStatus.OK if is_ready else HTTPStatus.BAD_REQUEST


def _target(request: Request) -> tuple[str, str]:
    """The model of a path and its version; empty for all, and for any."""
    return request.path_params.get("model", ""), request.path_params.get("version", "")


def _paths(core: Core, gate: Gate) -> Sequence[Path]:
    answers = Answers(OpenInference(core, gate))
    paths = [
        Path(path="/v2", method="GET", answer=answers.server),
        Path(path="/v2/health/live", method="GET", answer=answers.live, is_open=True),
        Path(path="/v2/health/ready", method="GET", answer=answers.ready, is_open=True),
        Path(path="/v2/models/stats", method="GET", answer=answers.statistics),
        Path(path="/v2/repository/index", method="POST", answer=answers.index),
    ]
    for model in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        paths += [
            Path(path=model, method="GET", answer=answers.metadata),
            Path(path=f"{model}/ready", method="GET", answer=answers.model_ready),
            Path(path=f"{model}/config", method="GET", answer=answers.configuration),
            Path(path=f"{model}/stats", method="GET", answer=answers.statistics),
            Path(path=f"{model}/infer", method="POST", answer=answers.infer, is_work=True),
            Path(path=f"{model}/generate", method="POST", answer=answers.generate, is_work=True),
            Path(
                path=f"{model}/generate_stream",
                method="POST",
                answer=answers.generate_stream,
                is_work=True,
            ),
        ]
    for change, answer in (("load", answers.load), ("unload", answers.unload)):
        path = f"/v2/repository/models/{{model}}/{change}"
        paths.append(Path(path=path, method="POST", answer=answer, for_operators=True))
    for path in _UNSERVED:
        paths += [Path(path=path, method=m, answer=answers.unserved) for m in ("GET", "POST")]
    return paths


DOOR = HttpDoor(prefix="/v2", error_body=error_body, paths=_paths)

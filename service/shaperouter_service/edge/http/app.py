"""The paths of the HTTP port."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shaperouter_service.edge.http.calls import Answer, Endpoint, not_found
from shaperouter_service.edge.http.door import HttpDoor
from shaperouter_service.edge.http.errors import HttpError, error_body, error_response
from shaperouter_service.edge.http.openai.encoders import Encoders
from shaperouter_service.edge.http.openai.generation import Generations
from shaperouter_service.edge.http.openai.models import ModelList
from shaperouter_service.edge.http.openai.responses import Responses
from shaperouter_service.edge.http.openai.speech import Speech
from shaperouter_service.errors import DEFECT, ExhaustedError, ServiceError
from shaperouter_service.serving.core import Core
from shaperouter_service.serving.gate import Gate
from shaperouter_service.telemetry.http_calls import HttpMetrics

log = structlog.get_logger(__name__)


def make_app(
    core: Core, gate: Gate, metrics: HttpMetrics, doors: Sequence[HttpDoor] = ()
) -> Starlette:
    """Creates the application.

    Args:
        core: The core, which does the work.
        gate: The gate that every call passes.
        metrics: Counts the calls.
        doors: The doors beside OpenAI's.
    """

    def route(path: str, method: str, answer: Answer, **settings: Any) -> Route:
        endpoint = Endpoint(path, answer, gate=gate, metrics=metrics, **settings)
        return Route(path, endpoint, methods=[method])

    async def health(_: Request) -> Response:
        """Answers probes, which have no token: whether the router is ready and accepts work."""
        is_ready = core.models.ready and gate.is_open
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return JSONResponse({"status": "ready" if is_ready else "not ready"}, status)

    def failed(
        request: Request, error: ServiceError, headers: Mapping[str, str] | None = None
    ) -> Response:
        """The answer in the form of the door that the path belongs to."""
        path = request.url.path
        bodies = (door.error_body for door in doors if f"{path}/".startswith(f"{door.prefix}/"))
        return error_response(error, headers, body=next(bodies, error_body))

    async def http_exception(request: Request, error: Exception) -> Response:
        """Answers requests for which there is no path or method."""
        if not isinstance(error, HTTPException):
            raise error
        if error.status_code == HTTPStatus.NOT_FOUND:
            return failed(request, not_found(request.url.path))
        status = HTTPStatus(error.status_code)
        message = f"{status.phrase}: {request.method} {request.url.path}"
        return failed(request, HttpError(status, "invalid_request", message), error.headers)

    async def defect(request: Request, error: Exception) -> Response:
        """Answers a request that met a defect of the service."""
        log.error("defect in a call", method=request.method, path=request.url.path, exc_info=error)
        if exhausted := ExhaustedError.of(error):
            return failed(request, exhausted)
        return failed(request, HttpError(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", DEFECT))

    generations, models = Generations(core, gate), ModelList(core.models, core.on_demand)
    encoders, speech = Encoders(core.inference), Speech(core.transcription)
    app = Starlette(
        routes=[
            Route("/health", health, methods=["GET"]),
            route("/v1/models", "GET", models.all, is_work=False),
            route("/v1/models/{model}", "GET", models.one, is_work=False),
            route("/v1/completions", "POST", generations.completions),
            route("/v1/chat/completions", "POST", generations.chat),
            route("/v1/responses", "POST", Responses(core.generation).create),
            route("/v1/embeddings", "POST", encoders.embeddings),
            route("/v1/rerank", "POST", encoders.rerank),
            route("/v1/audio/transcriptions", "POST", speech.transcriptions),
            route("/v1/audio/translations", "POST", speech.translations),
            *(
                route(
                    each.path,
                    each.method,
                    each.answer,
                    is_work=each.is_work,
                    is_open=each.is_open,
                    for_operators=each.for_operators,
                    error_body=door.error_body,
                )
                for door in doors
                for each in door.paths(core, gate)
            ),
        ],
        exception_handlers={HTTPException: http_exception, Exception: defect},
    )
    # A path with a slash at its end does not exist. The redirect would reach callers without a
    # token, and its address comes from their own header.
    app.router.redirect_slashes = False
    return app

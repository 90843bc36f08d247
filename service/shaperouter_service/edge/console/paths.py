"""The paths of the console."""

import contextlib
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from shaperouter_service.edge.console.board import Board, Watcher, hello
from shaperouter_service.edge.console.files import file_answers
from shaperouter_service.edge.console.values import (
    explained_request,
    fit_row,
    graph_row,
    option_row,
)
from shaperouter_service.edge.http.bodies import read_json
from shaperouter_service.edge.http.calls import not_found, while_connected
from shaperouter_service.edge.http.door import HttpDoor, Path
from shaperouter_service.edge.http.errors import error_body
from shaperouter_service.edge.http.event_stream import Pieces, event_stream
from shaperouter_service.errors import InvalidRequestError, shortened
from shaperouter_service.generation.option_table import OPTIONS
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.warm_request import RequestedGraph, WarmRequest
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.core import Core
from shaperouter_service.serving.gate import Gate

# Maximum bytes of a request to warm a graph.
_MAX_WARM_BYTES = 4096
# Maximum characters of a wrong value in an error.
_SHOWN = 64


class Answers:
    """Answers the requests of the page."""

    def __init__(self, core: Core) -> None:
        """Takes the core."""
        self._core = core
        self._board = Board(core)

    async def watch(self, request: Request, call: Call) -> ASGIApp:
        """GET /console/events: everything at once, and then what changes."""
        stream = event_stream(self._news(call), last=None)
        return await while_connected(request, stream)

    async def options(self, _: Request, __: Call) -> Response:
        """GET /console/options: the table of generation options."""
        return JSONResponse([option_row(option) for option in OPTIONS.values()])

    async def request(self, request: Request, call: Call) -> Response:
        """GET /console/requests/{id}: one of the last requests, with the router's options."""
        found = self._core.overview.request(request.path_params["id"], call)
        if found is None:
            raise not_found(request.url.path)
        return JSONResponse(explained_request(found))

    async def warm(self, request: Request, call: Call) -> Response:
        """POST /console/warm: requests a graph; the events show its progress."""
        asked = _warm_request(await read_json(request, limit=_MAX_WARM_BYTES))
        async with contextlib.aclosing(self._core.graphs.warm(asked, call)) as states:
            graphs = await anext(states)
        return JSONResponse([graph_row(graph) for graph in graphs])

    async def ladders(self, _: Request, __: Call) -> Response:
        """GET /console/ladders: ladders fitted to the recorded traffic, beside today's."""
        fits = self._core.ladder_fits
        models = [fit_row(fit) for fit in await fits.fits()]
        return JSONResponse({"has_record": fits.has_record, "models": models})

    async def _news(self, call: Call) -> Pieces:
        watcher = Watcher(self._board, call)
        async with contextlib.aclosing(self._core.overview.looks(call)) as looks:
            yield {"hello": hello(self._core, call)}
            async for _ in looks:
                yield watcher.news()


def _warm_request(body: dict[str, Any]) -> WarmRequest:
    """Reads a signature in its short form, and where to warm it.

    Raises:
        InvalidRequestError: The body has other fields, or other types of them.
    """
    text, everywhere = body.pop("signature", ""), body.pop("all_workers", False)
    for field in body:
        raise InvalidRequestError.of(shortened(field, _SHOWN), "is unknown")
    if not isinstance(everywhere, bool):
        shown = shortened(repr(everywhere), _SHOWN)
        raise InvalidRequestError.of("all_workers", f"must be true or false, got {shown}")
    try:
        signature = Signature.parse(shortened(str(text), 1024))
    except ValueError as error:
        raise InvalidRequestError.of("signature", shortened(str(error), 1024)) from error
    graph = RequestedGraph(
        model=signature.model,
        kind=signature.kind,
        beams=signature.beams,
        rows=signature.rows,
        length=signature.length,
        further=signature.further,
        exact=signature.exact,
    )
    return WarmRequest(count=1, graphs=[graph], workers=[], all_workers=everywhere)


def _paths(core: Core, _: Gate) -> Sequence[Path]:
    answers = Answers(core)
    return [
        # Public like the source of the project: only the other paths return data.
        *(
            Path(path=path, method="GET", answer=answer, is_open=True)
            for path, answer in file_answers()
        ),
        Path(path="/console/events", method="GET", answer=answers.watch),
        Path(path="/console/options", method="GET", answer=answers.options),
        Path(path="/console/requests/{id}", method="GET", answer=answers.request),
        # What all clients have asked for, and work for a thread.
        Path(path="/console/ladders", method="GET", answer=answers.ladders, for_operators=True),
        Path(path="/console/warm", method="POST", answer=answers.warm, for_operators=True),
    ]


DOOR = HttpDoor(prefix="/console", error_body=error_body, paths=_paths)

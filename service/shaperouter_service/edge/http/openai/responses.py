"""Responses: OpenAI's newer API for conversations, without state."""

import contextlib
from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from shaperouter_service.edge.http.bodies import read_json
from shaperouter_service.edge.http.calls import while_connected
from shaperouter_service.edge.http.errors import error_body, retry_hint
from shaperouter_service.edge.http.event_stream import Pieces, event_stream
from shaperouter_service.edge.http.openai.response_answers import ResponseWriter
from shaperouter_service.edge.http.openai.response_requests import (
    ResponseRequest,
    response_request,
)
from shaperouter_service.errors import ServiceError
from shaperouter_service.generation.events import Completed, Delta
from shaperouter_service.generation.limits import MAX_TEXT_REQUEST_BYTES
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.generation.completion import collected
from shaperouter_service.serving.generation.service import GenerationService


class Responses:
    """Answers requests for responses."""

    def __init__(self, generation: GenerationService) -> None:
        """Takes what generates."""
        self._generation = generation

    async def create(self, request: Request, call: Call) -> Response:
        """POST /v1/responses."""
        asked = response_request(await read_json(request, limit=MAX_TEXT_REQUEST_BYTES))
        writer = ResponseWriter(
            response_id=f"resp_{call.request_id}",
            model=asked.request.model,
            repeated=asked.repeated,
        )
        if asked.streams:

            def failed(error: ServiceError) -> Iterator[dict[str, Any]]:
                told = error_body(error)["error"]
                return writer.fail(told["code"], told["message"], retry_hint(error))

            stream = event_stream(
                self._pieces(asked, writer, call), failed=failed, last=None, are_typed=True
            )
            return await while_connected(request, stream)
        await while_connected(request, self._write(asked, writer, call))
        return JSONResponse(writer.body())

    async def _write(self, asked: ResponseRequest, writer: ResponseWriter, call: Call) -> None:
        """Writes the whole response."""
        events = self._generation.generate(asked.request, call)
        with asked.fields.callers_words():
            async with contextlib.aclosing(events):
                generation = await collected(events)
        (sequence,) = generation.sequences
        writer.usage.add(generation.completion)
        writer.usage.reasoning = sequence.reasoning_tokens
        # The events make the response, streamed or not.
        for _ in (*writer.write(sequence.parts), *writer.end(sequence.end.finish_reason)):
            pass

    async def _pieces(self, asked: ResponseRequest, writer: ResponseWriter, call: Call) -> Pieces:
        """Yields the events of a response; None for an event of the core that has none."""
        events = self._generation.generate(asked.request, call)
        with asked.fields.callers_words():
            async with contextlib.aclosing(events):
                async for event in events:
                    if not writer.has_begun:
                        for each in writer.begin():
                            yield each
                    match event:
                        case Delta():
                            writer.usage.reasoning += event.reasoning_tokens
                            for each in writer.write(event.parts):
                                yield each
                        case Completed():
                            writer.usage.add(event.completion)
                            for each in writer.end(event.sequences[0].finish_reason):
                                yield each
                        case _:
                            yield None

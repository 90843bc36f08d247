"""Completions and chat completions."""

import asyncio
import contextlib
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from shaperouter_service.edge.http.bodies import read_json
from shaperouter_service.edge.http.calls import while_connected
from shaperouter_service.edge.http.errors import error_body
from shaperouter_service.edge.http.openai.answers import Answer
from shaperouter_service.edge.http.openai.requests import (
    OpenAIRequest,
    chat_request,
    completion_request,
)
from shaperouter_service.errors import InvalidRequestError, ServiceError
from shaperouter_service.generation.events import Completed, Delta, Generation, GenerationEvent
from shaperouter_service.generation.limits import MAX_TEXT_REQUEST_BYTES
from shaperouter_service.generation.run_events import PromptLogprobs, TokenLogprobs
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.core import Core
from shaperouter_service.serving.generation.completion import collected
from shaperouter_service.serving.merging import merged

# Seconds without an event after which a stream sends a comment, so that proxies keep it open.
PING = 10
# Seconds that a caller may take to read a piece of a stream.
READ_SECONDS = 60.0
_DONE = ServerSentEvent("[DONE]")

Events = AsyncGenerator[GenerationEvent, None]


class Generations:
    """Answers requests for completions."""

    def __init__(self, core: Core) -> None:
        """Takes the core."""
        self._core = core

    async def chat(self, request: Request, call: Call) -> Response:
        """POST /v1/chat/completions."""
        return await self._answer(request, call, chat_request)

    async def completions(self, request: Request, call: Call) -> Response:
        """POST /v1/completions."""
        return await self._answer(request, call, completion_request)

    async def _answer(
        self, request: Request, call: Call, read: Callable[[Mapping[str, Any]], OpenAIRequest]
    ) -> Response:
        asked = read(await read_json(request, limit=MAX_TEXT_REQUEST_BYTES))
        if asked.streams:
            return await while_connected(request, self._stream(asked, call))
        generations = await while_connected(request, self._whole(asked, call))
        return JSONResponse(self._begin(asked, call).whole(generations))

    def _begin(self, asked: OpenAIRequest, call: Call) -> Answer:
        model, kind = asked.requests[0].model, "chatcmpl" if asked.is_chat else "cmpl"
        return Answer(
            id=f"{kind}-{call.request_id}",
            model=model,
            is_chat=asked.is_chat,
            token_text=self._core.models.token_text(model),
            scores_prompt=asked.scores_prompt,
        )

    def _events(self, asked: OpenAIRequest, call: Call) -> list[Events]:
        """The events of each prompt's generation."""
        several = len(asked.requests) > 1
        return [
            self._core.generation.generate(
                each,
                # Runs need ids of their own.
                replace(call, request_id=f"{call.request_id}-{index}") if several else call,
            )
            for index, each in enumerate(asked.requests)
        ]

    async def _whole(self, asked: OpenAIRequest, call: Call) -> Sequence[Generation]:
        """Generates all sequences."""

        async def one(events: Events) -> Generation:
            async with contextlib.aclosing(events):
                return await collected(events)

        with _in_callers_words(asked):
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(one(each)) for each in self._events(asked, call)]
            except ExceptionGroup as errors:
                # The first is the cause; the others are at most more of the same.
                raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _stream(self, asked: OpenAIRequest, call: Call) -> Response:
        """Waits for the first event, so that an error has a status, and streams the rest."""
        pieces = self._pieces(asked, self._begin(asked, call), call)
        try:
            first = await anext(pieces)
        except BaseException:
            await pieces.aclose()
            raise
        return EventSourceResponse(
            _events_of(first, pieces),
            sep="\n",
            ping=PING,
            send_timeout=READ_SECONDS,
            headers={"x-accel-buffering": "no"},
        )

    async def _pieces(
        self, asked: OpenAIRequest, answer: Answer, call: Call
    ) -> AsyncGenerator[dict[str, Any] | None, None]:
        """Yields the pieces of a stream; None for an event that has none."""
        started: set[int] = set()
        # Of each prompt, as far as they are known.
        prompt_logprobs: defaultdict[int, list[TokenLogprobs]] = defaultdict(list)
        per_prompt = asked.requests[0].options["num_return_sequences"]
        with _in_callers_words(asked):
            async with contextlib.aclosing(merged(self._events(asked, call))) as events:
                async for prompt, event in events:
                    match event:
                        case PromptLogprobs(logprobs):
                            prompt_logprobs[prompt] += logprobs
                        case Delta():
                            index = prompt * per_prompt + event.sequence
                            is_first = index not in started
                            started.add(index)
                            if is_first and asked.is_chat:
                                yield answer.start(index)
                            if is_first and asked.scores_prompt:
                                piece = answer.prompt(index, event, prompt_logprobs[prompt])
                                yield self._with_usage(asked, piece)
                            elif event.text or event.logprobs:
                                yield self._with_usage(asked, answer.piece(index, event))
                        case Completed():
                            answer.usage.add(event.completion)
                            for sequence, end in enumerate(event.sequences):
                                index = prompt * per_prompt + sequence
                                yield self._with_usage(asked, answer.end(index, end.finish_reason))
                        case _:
                            yield None
        if asked.includes_usage:
            yield answer.total()

    @staticmethod
    def _with_usage(asked: OpenAIRequest, piece: dict[str, Any]) -> dict[str, Any]:
        return piece | {"usage": None} if asked.includes_usage else piece


async def _events_of(
    first: dict[str, Any] | None, pieces: AsyncGenerator[dict[str, Any] | None, None]
) -> AsyncIterator[ServerSentEvent]:
    """The pieces as events, and the error if they end with one."""
    async with contextlib.aclosing(pieces):
        try:
            if first is not None:
                yield _event(first)
            async for piece in pieces:
                if piece is not None:
                    yield _event(piece)
        except ServiceError as error:
            yield _event(error_body(error))
            return
    yield _DONE


def _event(piece: Mapping[str, Any]) -> ServerSentEvent:
    return ServerSentEvent(json.dumps(piece, ensure_ascii=False, separators=(",", ":")))


@contextlib.contextmanager
def _in_callers_words(asked: OpenAIRequest) -> Any:
    """Gives errors the caller's names of fields."""
    try:
        yield
    except InvalidRequestError as error:
        raise asked.fields.in_callers_words(error) from None

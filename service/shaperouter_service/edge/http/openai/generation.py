"""Completions and chat completions."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from shaperouter_service.edge.http.bodies import read_json
from shaperouter_service.edge.http.calls import while_connected
from shaperouter_service.edge.http.event_stream import Pieces, event_stream
from shaperouter_service.edge.http.openai.answers import Answer, Usage
from shaperouter_service.edge.http.openai.requests import (
    OpenAIRequest,
    chat_request,
    completion_request,
)
from shaperouter_service.edge.offloading import translated
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.generation.events import (
    Completed,
    Delta,
    Generation,
    GenerationEvent,
    TokenizedInput,
)
from shaperouter_service.generation.limits import MAX_TEXT_REQUEST_BYTES
from shaperouter_service.generation.run_events import PromptLogprobs, TokenLogprobs
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.core import Core
from shaperouter_service.serving.gate import Gate
from shaperouter_service.serving.generation.completion import collected
from shaperouter_service.serving.generation.kept_logprobs import KeptLogprobs
from shaperouter_service.serving.merging import merged

Events = AsyncGenerator[GenerationEvent, None]


class Generations:
    """Answers requests for completions."""

    def __init__(self, core: Core, gate: Gate) -> None:
        """Takes the core, and the gate that requests have passed."""
        self._core, self._gate = core, gate

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
            pieces = self._pieces(asked, self._begin(asked, call), call)
            return await while_connected(request, event_stream(pieces))
        answer = self._begin(asked, call)
        with self._core.generation.keeping_logprobs(call) as kept:
            generations = await while_connected(request, self._whole(asked, answer, call, kept))
            return await translated(kept.size, lambda: JSONResponse(answer.whole(generations)))

    def _begin(self, asked: OpenAIRequest, call: Call) -> Answer:
        model, kind = asked.requests[0].model, "chatcmpl" if asked.is_chat else "cmpl"
        return Answer(
            id=f"{kind}-{call.request_id}",
            model=model,
            is_chat=asked.is_chat,
            scores_prompt=asked.scores_prompt,
        )

    def _events(
        self,
        asked: OpenAIRequest,
        call: Call,
        on_input: Callable[[int, TokenizedInput], None],
        keeps: Callable[[GenerationEvent], None],
    ) -> list[Events]:
        """The events of each prompt's generation, and each prompt by its number as it is read."""
        several = len(asked.requests) > 1
        return [
            self._core.generation.generate(
                each,
                # Runs need ids of their own.
                replace(call, request_id=f"{call.request_id}-{index}") if several else call,
                partial(on_input, index),
                keeps=keeps,
            )
            for index, each in enumerate(asked.requests)
        ]

    def _admitted(self, asked: OpenAIRequest, call: Call) -> AbstractContextManager[None]:
        """Counts each prompt against the limits, as if it came by itself."""
        prompts, limit = len(asked.requests), self._gate.max_requests(call)
        if prompts > limit:
            rule = f"must have at most {limit} prompts, because of this client's limit of requests"
            raise InvalidRequestError.of("prompt", f"{rule}, got {prompts}")
        return self._gate.further(call, prompts - 1)

    async def _whole(
        self, asked: OpenAIRequest, answer: Answer, call: Call, kept: KeptLogprobs
    ) -> Sequence[Generation]:
        """Generates all sequences."""

        async def one(events: Events) -> Generation:
            async with contextlib.aclosing(events):
                return await collected(events)

        with asked.fields.callers_words(), self._admitted(asked, call):
            try:
                async with asyncio.TaskGroup() as group:
                    every = self._events(asked, call, answer.read, kept.of_all)
                    tasks = [group.create_task(one(each)) for each in every]
            except ExceptionGroup as errors:
                # The first is the cause; the others are at most more of the same.
                raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _pieces(self, asked: OpenAIRequest, answer: Answer, call: Call) -> Pieces:
        """Yields the pieces of a stream; None for an event that has none."""
        starts: set[int] = set()
        so_far = Usage()
        # One for each prompt, as far as they are known.
        prompt_logprobs: defaultdict[int, list[TokenLogprobs]] = defaultdict(list)
        per_prompt = asked.requests[0].options["num_return_sequences"]

        def with_usage(piece: dict[str, Any]) -> dict[str, Any]:
            if not asked.includes_usage:
                return piece
            return piece | {"usage": so_far.body() if asked.counts_along else None}

        def read(prompt: int, given: TokenizedInput) -> None:
            so_far.add_input(given)
            answer.read(prompt, given)

        with (
            asked.fields.callers_words(),
            self._admitted(asked, call),
            self._core.generation.keeping_logprobs(call) as kept,
        ):
            every = self._events(asked, call, read, kept.of_prompt)
            async with contextlib.aclosing(merged(every)) as events:
                async for prompt, event in events:
                    match event:
                        case PromptLogprobs(logprobs):
                            prompt_logprobs[prompt] += logprobs
                        case Delta():
                            index = prompt * per_prompt + event.sequence
                            is_first = index not in starts
                            starts.add(index)
                            if is_first and asked.is_chat:
                                yield with_usage(answer.start(index))
                            so_far.generated += len(event.token_ids)
                            so_far.reasoning += event.reasoning_tokens
                            if is_first and asked.scores_prompt:
                                known = prompt_logprobs[prompt]
                                piece = await translated(
                                    kept.size, answer.prompt, prompt, index, event, known
                                )
                                yield with_usage(piece)
                                continue
                            for piece in answer.pieces(prompt, index, event):
                                yield with_usage(piece)
                        case Completed():
                            answer.ended(event.completion)
                            for sequence, end in enumerate(event.sequences):
                                index = prompt * per_prompt + sequence
                                yield with_usage(answer.end(index, end.finish_reason))
                        case _:
                            yield None
        if asked.includes_usage:
            yield answer.total()

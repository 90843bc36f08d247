"""GenerationService: from a message to a run, and from its tokens to text."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from typing import Any

import grpc
from grpc import aio

from shaperouter.v1 import generation_pb2, generation_pb2_grpc, worker_pb2
from shaperouter_service.api.validation import GenerateAny, check_prompt, resolve_options
from shaperouter_service.errors import ServiceError
from shaperouter_service.fleet import Fleet
from shaperouter_service.telemetry.requests import RequestMetrics, RequestRecord
from shaperouter_service.text import Detokenizer, Tokenizer

REQUEST_ID_KEY = "x-request-id"


class GenerationServicer(generation_pb2_grpc.GenerationServiceServicer):
    """See generation.proto."""

    def __init__(
        self,
        fleet: Fleet,
        tokenizers: Mapping[str, Tokenizer | None],
        metrics: RequestMetrics,
    ) -> None:
        """Serves requests by running them on a fleet.

        Args:
            fleet: The workers.
            tokenizers: Of each model; None where the checkpoint has none.
            metrics: Told of each request.
        """
        self._fleet = fleet
        self._tokenizers = tokenizers
        self._metrics = metrics

    async def Generate(  # noqa: N802 (gRPC's name)
        self, request: generation_pb2.GenerateRequest, context: Any
    ) -> generation_pb2.GenerateResponse:
        """Answers once, when the generation has ended."""
        sequence = generation_pb2.Sequence()
        texts = []
        async with contextlib.aclosing(self._events(request, context)) as events:
            async for event in events:
                if event.HasField("delta"):
                    texts.append(event.delta.text)
                    sequence.token_ids.extend(event.delta.token_ids)
                elif event.HasField("completion"):
                    completion = event.completion
        sequence.text = "".join(texts)
        sequence.finish_reason = completion.finish_reason
        return generation_pb2.GenerateResponse(
            sequences=[sequence], completion=completion.completion
        )

    async def GenerateStream(  # noqa: N802 (gRPC's name)
        self, request: generation_pb2.GenerateStreamRequest, context: Any
    ) -> AsyncIterator[generation_pb2.GenerateStreamResponse]:
        """Answers as tokens are made."""
        async with contextlib.aclosing(self._events(request, context)) as events:
            async for event in events:
                yield event

    async def _events(
        self, request: GenerateAny, context: aio.ServicerContext[Any, Any]
    ) -> AsyncGenerator[generation_pb2.GenerateStreamResponse, None]:
        remaining = context.time_remaining()
        deadline = None if remaining is None else time.monotonic() + remaining
        request_id = uuid.uuid4().hex
        # In the trailer always, in the header only with the first event: gRPC's clients retry no
        # call whose header they have seen, so an error must come without one.
        context.set_trailing_metadata(((REQUEST_ID_KEY, request_id),))
        record = RequestRecord(self._metrics, request_id)
        with record, _recorded_end(record, deadline):
            name = self._fleet.catalog.resolve(request.model)
            record.waits(name)
            run = await self._prepare(request, name, deadline, record)
            detokenizer = self._detokenizer(name)
            async with contextlib.aclosing(self._fleet.run(run, deadline)) as responses:
                header_sent = False
                async for worker, response in responses:
                    if not header_sent:
                        header_sent = True
                        await context.send_initial_metadata(((REQUEST_ID_KEY, request_id),))
                    record.worker = worker
                    match response.WhichOneof("event"):
                        case "stall":
                            record.stalls()
                            yield generation_pb2.GenerateStreamResponse(stall=response.stall)
                        case "tokens":
                            record.tokens(len(response.tokens.token_ids))
                            yield _delta(response.tokens, detokenizer, run.options.eos_token_ids)
                        case "completion":
                            if rest := detokenizer.finish():
                                yield generation_pb2.GenerateStreamResponse(
                                    delta=generation_pb2.Delta(text=rest)
                                )
                            completion = _completion(run, response.completion, worker, record)
                            record.completed(completion.completion)
                            yield generation_pb2.GenerateStreamResponse(completion=completion)

    async def _prepare(
        self, request: GenerateAny, name: str, deadline: float | None, record: RequestRecord
    ) -> worker_pb2.RunRequest:
        """Checks a request and resolves everything that is left to default.

        Raises:
            InvalidRequestError: It breaks a rule.
            DeadlinePassedError: No worker has told the model's limits in time.
        """
        model = await self._fleet.model(name, deadline)
        tokenizer = self._tokenizers[name]
        if tokenizer:
            model.tokenizer = tokenizer.name
        check_prompt(request, model)
        if tokenizer and request.HasField("text"):
            prompt = await tokenizer.encode(request.text)
        else:
            prompt = list(request.token_ids.ids)
        options = resolve_options(request, model, prompt)
        record.prompt(len(prompt))
        return worker_pb2.RunRequest(
            request_id=record.request_id, model=name, token_ids=prompt, options=options
        )

    def _detokenizer(self, name: str) -> Detokenizer:
        tokenizer = self._tokenizers[name]
        # Without a tokenizer there are only token ids, and no text.
        return tokenizer.detokenizer() if tokenizer else Detokenizer(lambda _: "")


@contextlib.contextmanager
def _recorded_end(record: RequestRecord, deadline: float | None) -> Iterator[None]:
    """Tells the record how a request ended that did not end well."""
    try:
        yield
    except ServiceError as error:
        record.code, record.error = error.code, str(error)
        raise
    except (asyncio.CancelledError, GeneratorExit):
        # The caller has gone, or its deadline has passed: gRPC cancels us for either.
        passed = deadline is not None and time.monotonic() >= deadline
        record.code = grpc.StatusCode.DEADLINE_EXCEEDED if passed else grpc.StatusCode.CANCELLED
        raise
    except Exception as error:
        record.code, record.error = grpc.StatusCode.INTERNAL, repr(error)
        raise


def _delta(
    tokens: worker_pb2.RunTokens, detokenizer: Detokenizer, eos_token_ids: Any
) -> generation_pb2.GenerateStreamResponse:
    # An end token can only be the last, and is no text even where a tokenizer would show it.
    ids = list(tokens.token_ids)
    visible = ids[:-1] if ids[-1] in eos_token_ids else ids
    delta = generation_pb2.Delta(text=detokenizer.push(visible), token_ids=ids)
    return generation_pb2.GenerateStreamResponse(delta=delta)


def _completion(
    run: worker_pb2.RunRequest,
    ended: worker_pb2.RunCompletion,
    worker: str,
    record: RequestRecord,
) -> generation_pb2.StreamCompletion:
    return generation_pb2.StreamCompletion(
        finish_reason=ended.finish_reason,
        completion=generation_pb2.Completion(
            request_id=run.request_id,
            model=run.model,
            seed=run.options.seed,
            usage=generation_pb2.Usage(
                prompt_tokens=len(run.token_ids),
                padded_prompt_tokens=ended.padded_prompt_tokens,
                generated_tokens=record.generated_tokens,
            ),
            timings=generation_pb2.Timings(
                queue_seconds=ended.queue_seconds,
                stall_seconds=ended.stall_seconds,
                prefill_seconds=ended.prefill_seconds,
                decode_seconds=ended.decode_seconds,
                time_to_first_token_seconds=record.time_to_first_token,
                total_seconds=record.total_seconds,
            ),
            graphs=ended.graphs,
            worker=worker,
        ),
    )

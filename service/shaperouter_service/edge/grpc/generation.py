"""GenerationService: turns a request into runs, and their events into one answer."""

import contextlib
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any

from grpc import aio

from shaperouter.v1 import generation_pb2, generation_pb2_grpc
from shaperouter_service.edge.grpc.clients import client_of
from shaperouter_service.edge.grpc.models import takes_text
from shaperouter_service.errors import InvalidRequestError, Violation
from shaperouter_service.fleet import Fleet
from shaperouter_service.generation.run_events import Stalled
from shaperouter_service.generation.run_request import RunRequest
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.rpc.call import REQUEST_ID_KEY, current_request_id
from shaperouter_service.serving.calls import deadline_of, recorded_end
from shaperouter_service.serving.generation.completion import (
    completion_of,
    graph_uses,
    longest_timings,
)
from shaperouter_service.serving.generation.preparation import PreparedRequest, prepare
from shaperouter_service.serving.generation.sequences import RunEnd, SequenceWriter, run_events
from shaperouter_service.serving.merging import merged
from shaperouter_service.serving.tokenizers import taking_turns, with_tokenizer
from shaperouter_service.telemetry.requests import RequestMetrics, RequestRecord
from shaperouter_service.text import Detokenizer, Tokenizer, TokenizerThreads
from shaperouter_service.wire.inputs import GenerateAny
from shaperouter_service.wire.run_events import stall_to_message


class GenerationServicer(generation_pb2_grpc.GenerationServiceServicer):
    """See generation.proto."""

    def __init__(
        self,
        fleet: Fleet,
        tokenizers: Mapping[str, Tokenizer | None],
        threads: TokenizerThreads,
        metrics: RequestMetrics,
    ) -> None:
        """Serves requests by running them on a fleet.

        Args:
            fleet: The workers.
            tokenizers: The tokenizer of each model; None if the checkpoint has none.
            threads: The threads that tokenize texts.
            metrics: Metrics of requests.
        """
        self._fleet = fleet
        self._tokenizers = tokenizers
        self._threads = threads
        self._metrics = metrics

    async def Generate(  # noqa: N802 (gRPC's name)
        self, request: generation_pb2.GenerateRequest, context: Any
    ) -> generation_pb2.GenerateResponse:
        """Answers once, when the generation has ended."""
        texts: defaultdict[int, list[str]] = defaultdict(list)
        sequences: defaultdict[int, generation_pb2.Sequence] = defaultdict(generation_pb2.Sequence)
        async with contextlib.aclosing(self._events(request, context)) as events:
            async for event in events:
                if event.HasField("delta"):
                    delta = event.delta
                    texts[delta.sequence].append(delta.text)
                    sequences[delta.sequence].token_ids.extend(delta.token_ids)
                    sequences[delta.sequence].logprobs.extend(delta.logprobs)
                elif event.HasField("completion"):
                    ended = event.completion
        for index, end in enumerate(ended.sequences):
            sequences[index].text = "".join(texts[index])
            sequences[index].finish_reason = end.finish_reason
            if end.HasField("score"):
                sequences[index].score = end.score
        return generation_pb2.GenerateResponse(
            sequences=[sequences[index] for index in range(len(ended.sequences))],
            completion=ended.completion,
        )

    async def GenerateStream(  # noqa: N802 (gRPC's name)
        self, request: generation_pb2.GenerateStreamRequest, context: Any
    ) -> AsyncIterator[generation_pb2.GenerateStreamResponse]:
        """Answers as tokens are generated."""
        async with contextlib.aclosing(self._events(request, context)) as events:
            async for event in events:
                yield event

    async def _events(
        self, request: GenerateAny, context: aio.ServicerContext[Any, Any]
    ) -> AsyncGenerator[generation_pb2.GenerateStreamResponse, None]:
        deadline = deadline_of(context)
        request_id = current_request_id()
        record = RequestRecord(self._metrics, request_id)
        with record, recorded_end(record, deadline):
            name = await self._fleet.resolve(
                request.model, deadline, serves=takes_text, call="generate from text"
            )
            record.waits(name)
            client = client_of(context)
            prepared = await self._prepare(request, name, client, record, deadline)
            record.prompt(len(prepared.source) + len(prepared.prompt))
            streamed = isinstance(request, generation_pb2.GenerateStreamRequest)
            runs = prepared.runs(request_id, client, reads_along=streamed)
            async with contextlib.aclosing(self._run(prepared, runs, record, deadline)) as events:
                header_sent = False
                async for event in events:
                    if not header_sent:
                        # Not earlier: gRPC's clients do not retry a call whose header they have
                        # received.
                        header_sent = True
                        await context.send_initial_metadata(((REQUEST_ID_KEY, request_id),))
                    yield event

    async def _prepare(
        self,
        request: GenerateAny,
        name: str,
        client: str,
        record: RequestRecord,
        deadline: float | None,
    ) -> PreparedRequest:
        """Validates a request and resolves every default.

        Raises:
            InvalidRequestError: It is invalid.
            TextQueueFullError: Too much text is already waiting to be tokenized.
            NoWorkerInTimeError: No worker has reported the model's limits in time.
        """
        model = await self._fleet.model(name, deadline)
        if not takes_text(model):
            description = (
                f"must be a model that takes text, got {name}, which transcribes recordings: use "
                "TranscriptionService"
            )
            raise InvalidRequestError(Violation(field="model", description=description))
        tokenizer = self._tokenizers[name]
        model = with_tokenizer(model, tokenizer)
        if tokenizer is None:
            return await prepare(request, model, None)
        with taking_turns(tokenizer, self._threads, client, record) as lent:
            return await prepare(request, model, lent)

    async def _run(
        self,
        prepared: PreparedRequest,
        runs: Sequence[RunRequest],
        record: RequestRecord,
        deadline: float | None,
    ) -> AsyncGenerator[generation_pb2.GenerateStreamResponse, None]:
        """Runs all runs of a request side by side and merges their events."""
        writers = self._writers(prepared)
        streams = [
            # A run of beam search has all sequences; any other run has one.
            run_events(self._fleet, run, writers[place :: len(runs)], record, deadline)
            for place, run in enumerate(runs)
        ]
        waiting: dict[int, Signature] = {}
        ends: dict[int, RunEnd] = {}
        async with contextlib.aclosing(merged(streams)) as events:
            async for place, event in events:
                match event:
                    case Stalled():
                        # The caller has already been told what other runs wait for.
                        waiting.pop(place, None)
                        told = event.signature in waiting.values()
                        waiting[place] = event.signature
                        if not told:
                            stall = stall_to_message(event)
                            yield generation_pb2.GenerateStreamResponse(stall=stall)
                    case generation_pb2.Delta():
                        waiting.pop(place, None)
                        yield generation_pb2.GenerateStreamResponse(delta=event)
                    case RunEnd():
                        ends[place] = event
        in_order = [ends[place] for place in sorted(ends)]
        accounts = [end.account for end in in_order]
        timings, graphs = longest_timings(accounts), graph_uses(accounts)
        record.completed(worker=in_order[0].worker, timings=timings, graphs=graphs)
        completion = completion_of(prepared, in_order, record, timings=timings, graphs=graphs)
        yield generation_pb2.GenerateStreamResponse(completion=completion)

    def _writers(self, prepared: PreparedRequest) -> list[SequenceWriter]:
        tokenizer = self._tokenizers[prepared.model]
        return [
            SequenceWriter(
                sequence,
                # Without a tokenizer there are only token ids.
                detokenizer=tokenizer.detokenizer() if tokenizer else Detokenizer(lambda _: ""),
                eos_token_ids=prepared.options.eos_token_ids,
                stop=prepared.stop,
                echo=prepared.echo,
            )
            for sequence in range(prepared.options.num_return_sequences)
        ]

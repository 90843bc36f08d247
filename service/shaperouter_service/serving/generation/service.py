"""Generation: turns a request into runs, and their events into those of the request."""

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence

from shaperouter_service.errors import LogprobMemoryError
from shaperouter_service.fleet import Fleet
from shaperouter_service.generation.events import Delta, GenerationEvent, TokenizedInput
from shaperouter_service.generation.request import GenerationRequest
from shaperouter_service.generation.run_events import PromptLogprobs, Stalled
from shaperouter_service.generation.run_request import RunRequest
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.fair_memory import FairMemory
from shaperouter_service.serving.generation.completion import (
    completion_of,
    graph_uses,
    longest_timings,
)
from shaperouter_service.serving.generation.kept_logprobs import KeptLogprobs
from shaperouter_service.serving.generation.messages import MessageWriter
from shaperouter_service.serving.generation.preparation import PreparedRequest, prepare
from shaperouter_service.serving.generation.sequences import RunEnd, SequenceWriter, run_events
from shaperouter_service.serving.merging import merged
from shaperouter_service.serving.model_choice import ModelChoice
from shaperouter_service.serving.models import takes_text, wrong_model
from shaperouter_service.serving.request_record import RequestRecord, RequestRecorder
from shaperouter_service.serving.tokenizers import taking_turns, with_tokenizer
from shaperouter_service.text import Detokenizer, Tokenizer, TokenizerThreads


class GenerationService:
    """Generates text on a fleet. Only the event loop may use it."""

    def __init__(
        self,
        fleet: Fleet,
        choice: ModelChoice,
        tokenizers: Mapping[str, Tokenizer | None],
        threads: TokenizerThreads,
        recorder: RequestRecorder,
        *,
        memory: FairMemory,
        separates_clients: bool = False,
    ) -> None:
        """Serves requests by running them on a fleet.

        Args:
            fleet: The workers.
            choice: Chooses the models of requests.
            tokenizers: The tokenizer of each model; None if the checkpoint has none.
            threads: The threads that tokenize texts.
            recorder: Makes the records of requests.
            memory: Memory of the log-probabilities of all answers that are not streamed.
            separates_clients: Whether workers reuse what they have read of a prompt only for
                requests of the same client.
        """
        self._separates_clients = separates_clients
        self._fleet = fleet
        self._choice = choice
        self._tokenizers = tokenizers
        self._threads = threads
        self._recorder = recorder
        self._memory = memory

    @contextlib.contextmanager
    def keeping_logprobs(self, call: Call) -> Iterator[KeptLogprobs]:
        """Counts the log-probabilities that a call keeps, inside the context."""
        with self._memory.share(call.client, full=LogprobMemoryError) as share:
            yield KeptLogprobs(share)

    async def generate(
        self,
        request: GenerationRequest,
        call: Call,
        on_input: Callable[[TokenizedInput], None] = lambda _: None,
        *,
        keeps: Callable[[GenerationEvent], None] = lambda _: None,
    ) -> AsyncGenerator[GenerationEvent, None]:
        """Yields the events of a generation; closing the generator cancels its runs.

        Args:
            request: The request.
            call: The call that it came with.
            on_input: Called with the prompt, or the source if there is one, before the first
                event.
            keeps: Counts what the caller keeps of each event, before it gets it; see
                `KeptLogprobs`. An error that it raises is recorded as the request's.

        Raises:
            ServiceError: The request is invalid, or cannot be served.
        """
        with self._recorder.record(call) as record:
            async with self._choice.chosen(
                request.model, call, record, serves=takes_text, does="generate from text"
            ) as model:
                prepared = await self._prepare(request, model, call, record)
                record.prompt(len(prepared.source) + len(prepared.prompt))
                on_input(self._input(prepared))
                runs = prepared.runs(
                    call.request_id,
                    call.client,
                    prefix_scope=call.client if self._separates_clients else "",
                    reads_along=request.reads_along,
                )
                events = self._run(prepared, runs, call, record)
                async with contextlib.aclosing(events):
                    async for event in events:
                        keeps(event)
                        yield event

    async def _prepare(
        self, request: GenerationRequest, model: ServedModel, call: Call, record: RequestRecord
    ) -> PreparedRequest:
        """Validates a request and resolves every default.

        Raises:
            InvalidRequestError: It is invalid.
            TextQueueFullError: Too much text is already waiting to be tokenized.
        """
        if not takes_text(model):
            raise wrong_model(model, "generates from text")
        tokenizer = self._tokenizers[model.name]
        model = with_tokenizer(model, tokenizer)
        if tokenizer is None:
            return await prepare(request, model, None)
        with taking_turns(tokenizer, self._threads, call.client, record) as lent:
            return await prepare(request, model, lent)

    def _input(self, prepared: PreparedRequest) -> TokenizedInput:
        """The prompt, or the source if there is one: a model with an encoder always has one."""
        tokenizer = self._tokenizers[prepared.model]
        return TokenizedInput(
            tokens=len(prepared.source or prepared.prompt),
            is_source=bool(prepared.source),
            token_text=tokenizer.token_text if tokenizer else lambda _: "",
            token_bytes=tokenizer.token_bytes if tokenizer else lambda _: None,
            decode=tokenizer.decode if tokenizer else lambda _: "",
            context=prepared.context,
            echo=prepared.echo.text if prepared.echo else "",
        )

    async def _run(
        self,
        prepared: PreparedRequest,
        runs: Sequence[RunRequest],
        call: Call,
        record: RequestRecord,
    ) -> AsyncGenerator[GenerationEvent, None]:
        """Runs all runs of a request side by side and merges their events."""
        writers = self._writers(prepared)
        streams = [
            # A run of beam search has all sequences; any other run has one.
            run_events(self._fleet, run, writers[index :: len(runs)], record, call.deadline)
            for index, run in enumerate(runs)
        ]
        waiting: dict[int, Signature] = {}
        # Deltas of other runs, until the first run has scored the prompt.
        held: list[Delta] | None = None if prepared.options["prompt_logprobs"] is None else []
        ends: dict[int, RunEnd] = {}
        async with contextlib.aclosing(merged(streams)) as events:
            async for index, event in events:
                match event:
                    case Stalled():
                        # The caller already knows what the other runs wait for.
                        waiting.pop(index, None)
                        reported = event.signature in waiting.values()
                        waiting[index] = event.signature
                        if not reported:
                            yield event
                    case PromptLogprobs():
                        waiting.pop(index, None)
                        yield event
                    case Delta():
                        waiting.pop(index, None)
                        if held is not None and index > 0:
                            held.append(event)
                            continue
                        yield event
                        for delta in held or ():
                            yield delta
                        held = None
                    case RunEnd():
                        ends[index] = event
        in_order = [ends[index] for index in sorted(ends)]
        accounts = [end.account for end in in_order]
        timings, graphs = longest_timings(accounts), graph_uses(accounts)
        record.completed(worker=in_order[0].worker, timings=timings, graphs=graphs)
        yield completion_of(prepared, in_order, record, timings=timings, graphs=graphs)

    def _writers(self, prepared: PreparedRequest) -> list[SequenceWriter]:
        tokenizer, rules = self._tokenizers[prepared.model], prepared.message
        markers = tokenizer.dropped_markers(rules.format) if tokenizer and rules else {}
        return [
            SequenceWriter(
                sequence,
                # Without a tokenizer there are only token ids.
                detokenizer=tokenizer.detokenizer(prepared.context)
                if tokenizer
                else Detokenizer(lambda _: ""),
                eos_token_ids=prepared.options["eos_token_ids"],
                stop=prepared.stop,
                echo=prepared.echo,
                message=MessageWriter(rules, markers) if rules else None,
            )
            for sequence in range(prepared.options["num_return_sequences"])
        ]

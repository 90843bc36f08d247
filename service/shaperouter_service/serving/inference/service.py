"""Calls of functions and text encoders: checks them, sends them to workers, and counts them."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from shaperouter_service.fleet import Fleet
from shaperouter_service.inference.calls import InferenceRequest, InferenceResult, Tensors
from shaperouter_service.routing.deployments import public_name
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.fair_memory import FairMemory
from shaperouter_service.serving.inference.labels import with_labels
from shaperouter_service.serving.inference.preparation import PreparedCall, prepare
from shaperouter_service.serving.model_choice import ModelChoice
from shaperouter_service.serving.models import answers_once, wrong_model
from shaperouter_service.serving.request_record import RequestRecord, RequestRecorder
from shaperouter_service.serving.tokenizers import taking_turns, with_tokenizer
from shaperouter_service.text import Tokenizer, TokenizerThreads


class InferenceService:
    """Calls models that answer once on a fleet. Only the event loop may use it."""

    def __init__(
        self,
        fleet: Fleet,
        choice: ModelChoice,
        tokenizers: Mapping[str, Tokenizer | None],
        threads: TokenizerThreads,
        recorder: RequestRecorder,
        *,
        memory: FairMemory,
    ) -> None:
        """Serves requests by calling models on a fleet.

        Args:
            fleet: The workers.
            choice: Chooses the models of requests.
            tokenizers: The tokenizer of each model; None if it has none.
            threads: The threads that tokenize texts.
            recorder: Makes the records of requests.
            memory: Memory of all calls' requests and tensors.
        """
        self._fleet = fleet
        self._choice = choice
        self._tokenizers = tokenizers
        self._threads = threads
        self._recorder = recorder
        self._memory = memory

    async def infer(
        self,
        request: InferenceRequest,
        call: Call,
        inputs_of: Callable[[ServedModel], Tensors] | None = None,
    ) -> InferenceResult:
        """Calls a model and returns the result. Cancelling the task cancels the call.

        Args:
            request: The request.
            call: The call that it came with.
            inputs_of: Returns the inputs of the chosen model, for a protocol whose requests do not
                name them, or raises InvalidRequestError. None takes those of the request.

        Raises:
            ServiceError: The request is invalid, or cannot be served.
        """
        with self._recorder.record(call) as record, self._memory.share(call.client) as share:
            # First of all: a call may wait for minutes until its model is loaded.
            share.resize(request.size)
            async with self._choice.chosen(
                request.model, call, record, serves=answers_once, does="be called with tensors"
            ) as model:
                if inputs_of is not None:
                    request = replace(request, inputs=inputs_of(model))
                    share.resize(request.size, begun=True)
                prepared = await self._prepare(request, model, call, record)
                record.rows(prepared.shape.rows)
                record.prompt(prepared.tokens)
                worker, result = await self._fleet.call(
                    prepared.worker_call(call.request_id, call.client),
                    prepared.shape,
                    call.deadline,
                    on_route=record.routed,
                    on_loss=record.lost,
                )
            record.completed(worker=worker, timings=result.timings, graphs=result.graphs)
            return InferenceResult(
                request_id=call.request_id,
                model=public_name(model.name),
                revision=record.revision,
                outputs=with_labels(result.outputs, prepared.outputs, prepared.labels),
                rows=prepared.shape.rows,
                tokens=prepared.tokens,
                timings=result.timings,
                route_seconds=record.route_seconds,
                total_seconds=record.total_seconds,
                graphs=result.graphs,
                worker=worker,
                routes=tuple(record.routes) if request.explains else (),
            )

    async def _prepare(
        self, request: InferenceRequest, model: ServedModel, call: Call, record: RequestRecord
    ) -> PreparedCall:
        """Checks a request and tokenizes its texts.

        Raises:
            InvalidRequestError: It is invalid.
            TextQueueFullError: Too much text is already waiting to be tokenized.
        """
        served = model.call
        if served is None:
            raise wrong_model(model, "is called with tensors")
        tokenizer = self._tokenizers[model.name]
        model = with_tokenizer(model, tokenizer)
        if tokenizer is None:
            return await prepare(request, model, served, None)
        with taking_turns(tokenizer, self._threads, call.client, record) as lent:
            return await prepare(request, model, served, lent)

# Generated from _async_client.py by `make blocking-client`. Do not edit.

"""The client's public calls."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Unpack, overload

from shaperouter import (
    _convert,
    _prompts,
    _readiness,
    _requests,
)
from shaperouter._generation import Generation
from shaperouter._graph import Graph
from shaperouter._inference_calls import InferenceCalls
from shaperouter._model import Model
from shaperouter._options import GenerationOptions
from shaperouter._repository_calls import RepositoryCalls
from shaperouter._retries import NO_RETRIES
from shaperouter._signature import Signature
from shaperouter._streams import (
    GenerationStream,
    GraphStream,
)
from shaperouter._transcription_calls import TranscriptionCalls
from shaperouter.v1 import generation_pb2, graph_pb2, model_pb2


class Client(TranscriptionCalls, InferenceCalls, RepositoryCalls):
    """A connection to a Shaperouter service.

    The client connects at its first call and reconnects after a loss. A call that cannot reach the
    service is tried four times and fails with `UnavailableError` after about 3 s; `retries` changes
    that. Every method raises `ShaperouterError` or one of its subclasses.

    Threads may share a blocking client. A client for asyncio may be created anywhere and belongs to
    the event loop of its first call, so each `asyncio.run` needs one of its own; cancelling a task
    cancels the call that it awaits. Use either as a context manager, or call `close`.
    """

    # A str is also a sequence of str. The first overload makes it one prompt.
    @overload
    def generate(  # type: ignore[overload-overlap]
        self,
        prompt: str | Sequence[int],
        *,
        decoder_text: str | None = None,
        decoder_token_ids: Sequence[int] | None = None,
        model: str = "",
        explain: bool = False,
        timeout: float | None = None,
        max_concurrency: int = _prompts.DEFAULT_CONCURRENCY,
        **options: Unpack[GenerationOptions],
    ) -> Generation: ...

    @overload
    def generate(
        self,
        prompt: Sequence[str] | Sequence[Sequence[int]],
        *,
        decoder_text: str | None = None,
        decoder_token_ids: Sequence[int] | None = None,
        model: str = "",
        explain: bool = False,
        timeout: float | None = None,
        max_concurrency: int = _prompts.DEFAULT_CONCURRENCY,
        **options: Unpack[GenerationOptions],
    ) -> list[Generation]: ...

    def generate(
        self,
        prompt: str | Sequence[int] | Sequence[str] | Sequence[Sequence[int]],
        *,
        decoder_text: str | None = None,
        decoder_token_ids: Sequence[int] | None = None,
        model: str = "",
        explain: bool = False,
        timeout: float | None = None,
        max_concurrency: int = _prompts.DEFAULT_CONCURRENCY,
        **options: Unpack[GenerationOptions],
    ) -> Generation | list[Generation]:
        """Continues one prompt or several, and returns the complete generations.

        Several prompts are sent concurrently, and their generations are returned in the same order.
        If some of them fail, the others continue; `PromptsError` then contains all results.

        Args:
            prompt: The text or its token ids, or a list of prompts. Must not be empty. For a model
                with an encoder, this is the source, which the encoder reads.
            decoder_text: For a model with an encoder, the text that the new tokens continue.
                Default: none.
            decoder_token_ids: The same as token ids.
            model: Name of the model. Default: the service's only one.
            explain: Whether the result's `routes` show how the request was routed.
            timeout: Deadline of this call with all its prompts, in seconds. Default: the client's.
            max_concurrency: Maximum number of prompts of a call that are in progress at a time.
            **options: How to generate; see `GenerationOptions`.

        Raises:
            InvalidArgumentError: The prompt or an option is invalid.
            ModelNotFoundError: The service has no such model.
            OverloadedError: The queue is full.
            UnavailableError: There is no connection, or the worker was lost.
            DeadlineError: The timeout passed before the end.
            PromptsError: Some of several prompts failed, each for one of these reasons.
        """
        request = partial(
            _requests.generation_request,
            generation_pb2.GenerateRequest,
            decoder_text=decoder_text,
            decoder_token_ids=decoder_token_ids,
            model=model,
            explain=explain,
            options=options,
        )
        if _prompts.is_list_of_prompts(prompt):
            requests = _prompts.prepare(prompt, request)
            concurrency = _prompts.concurrency(max_concurrency)
            return self._generate_each(requests, timeout, concurrency)
        response = self._call(self._stubs.generation.Generate, request(prompt), timeout)
        return _convert.response(response)

    def stream(
        self,
        prompt: str | Sequence[int],
        *,
        decoder_text: str | None = None,
        decoder_token_ids: Sequence[int] | None = None,
        model: str = "",
        explain: bool = False,
        timeout: float | None = None,
        on_stall: Callable[[Signature], None] | None = None,
        **options: Unpack[GenerationOptions],
    ) -> GenerationStream:
        """Continues a prompt and returns tokens as they are generated.

        Read the stream in ``with client.stream(prompt) as stream``, so that it is cancelled
        if the block is left early. Errors of the call are raised while iterating. A stream that
        fails before anything of its answer has arrived is repeated as a call is.

        Args:
            prompt: The text or its token ids. Must not be empty. For a model with an encoder, this
                is the source, which the encoder reads.
            decoder_text: For a model with an encoder, the text that the new tokens continue.
                Default: none.
            decoder_token_ids: The same as token ids.
            model: Name of the model. Default: the only one that generates from text.
            explain: Whether the result's `routes` show how the request was routed.
            timeout: Deadline of the whole stream in seconds. Default: the client's.
            on_stall: Called between tokens when the request starts to wait for the compilation of a
                graph.
            **options: How to generate; see `GenerationOptions`.

        Raises:
            InvalidArgumentError: An argument cannot be sent.
        """
        request = _requests.generation_request(
            generation_pb2.GenerateStreamRequest,
            prompt,
            decoder_text=decoder_text,
            decoder_token_ids=decoder_token_ids,
            model=model,
            explain=explain,
            options=options,
        )
        return self._generation_stream(request, timeout, on_stall)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        chat_template_kwargs: Mapping[str, Any] | None = None,
        model: str = "",
        explain: bool = False,
        timeout: float | None = None,
        **options: Unpack[GenerationOptions],
    ) -> Generation:
        """Answers a conversation, and returns the complete answer.

        The chat template of the model's checkpoint turns the conversation into a prompt.

        Args:
            messages: The conversation so far, such as ``[{"role": "user", "content": "Hello"}]``. A
                content is a str or a list of parts ``{"type": "text", "text": ...}``. Other fields,
                such as tool_calls, go to the template as they are.
            tools: JSON objects of tools that the template may offer to the model, as in
                Transformers' ``apply_chat_template``.
            chat_template_kwargs: Further arguments of the template, such as
                ``{"enable_thinking": False}``.
            model: Name of the model. Default: the only one that generates from text.
            explain: Whether the result's `routes` show how the request was routed.
            timeout: Deadline of this call in seconds. Default: the client's.
            **options: How to generate; see `GenerationOptions`.

        Raises:
            InvalidArgumentError: The conversation or an option is invalid, the model has no chat
                template, or its template refuses the conversation.
            ShaperouterError: The call failed; see `generate`.
        """
        request = _requests.chat_request(
            generation_pb2.GenerateRequest,
            messages,
            tools=tools,
            chat_template_kwargs=chat_template_kwargs,
            model=model,
            explain=explain,
            options=options,
        )
        return _convert.response(self._call(self._stubs.generation.Generate, request, timeout))

    def stream_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        chat_template_kwargs: Mapping[str, Any] | None = None,
        model: str = "",
        explain: bool = False,
        timeout: float | None = None,
        on_stall: Callable[[Signature], None] | None = None,
        **options: Unpack[GenerationOptions],
    ) -> GenerationStream:
        """Answers a conversation and returns tokens as they are generated.

        The arguments are those of `chat`; the stream is used like that of `stream`.

        Raises:
            InvalidArgumentError: An argument cannot be sent.
        """
        request = _requests.chat_request(
            generation_pb2.GenerateStreamRequest,
            messages,
            tools=tools,
            chat_template_kwargs=chat_template_kwargs,
            model=model,
            explain=explain,
            options=options,
        )
        return self._generation_stream(request, timeout, on_stall)

    def models(self, *, timeout: float | None = None) -> list[Model]:
        """Lists the models of the service, ordered by name.

        Args:
            timeout: Deadline of this call in seconds. Default: the client's.
        """
        response = self._call(self._stubs.models.ListModels, model_pb2.ListModelsRequest(), timeout)
        return [_convert.model(model) for model in response.models]

    def model(self, name: str, *, timeout: float | None = None) -> Model:
        """Returns one model of the service.

        Args:
            name: Name of the model.
            timeout: Deadline of this call in seconds. Default: the client's.

        Raises:
            ModelNotFoundError: The service has no such model.
        """
        response = self._call(self._stubs.models.GetModel, _requests.model_request(name), timeout)
        return _convert.model(response.model)

    def graphs(
        self, model: str = "", *, include_cold: bool = False, timeout: float | None = None
    ) -> list[Graph]:
        """Lists the graphs of all workers, ordered by model, kind, beams, rows, length and worker.

        Args:
            model: List only graphs of this model. Default: of all models.
            include_cold: Also list graphs that no request has needed yet.
            timeout: Deadline of this call in seconds. Default: the client's.
        """
        request = _requests.graphs_request(graph_pb2.ListGraphsRequest, model, include_cold)
        response = self._call(self._stubs.graphs.ListGraphs, request, timeout)
        return [_convert.graph(graph) for graph in response.graphs]

    def watch_graphs(
        self, model: str = "", *, include_cold: bool = False, timeout: float = math.inf
    ) -> GraphStream:
        """Lists the graphs of all workers like `graphs`, at once and again after changes.

        There are at most five lists a second. The stream ends only with the service. Errors of the
        call are raised while iterating.

        Args:
            model: List only graphs of this model. Default: of all models.
            include_cold: Also list graphs that no request has needed yet.
            timeout: Deadline of the whole stream in seconds. Default: none, even if the client has
                one.

        Raises:
            InvalidArgumentError: An argument cannot be sent.
        """
        request = _requests.graphs_request(graph_pb2.WatchGraphsRequest, model, include_cold)
        return self._graph_stream(self._stubs.graphs.WatchGraphs, request, timeout)

    def warm_graphs(
        self,
        signatures: Iterable[Signature | str],
        *,
        workers: Iterable[str] = (),
        all_workers: bool = False,
        timeout: float = math.inf,
    ) -> GraphStream:
        """Makes graphs ready ahead of traffic and reports progress.

        Each list has one graph for each signature and worker, in the order of the signatures. The
        last list is sent when each graph is ready or has failed; a failed graph's `error` gives the
        reason. Ending the stream early does not stop the compilations. Errors of the call are
        raised while iterating.

        Args:
            signatures: The graphs to make ready, as `Signature` or in the short form that
                ``Signature.parse`` reads; 1 to 1000 signatures from the ladders of their models.
            workers: Names of the workers to make them on. Default: for each signature, the worker
                to which the router sends such requests first.
            all_workers: Make them on all workers. Must not be set together with `workers`.
            timeout: Deadline of the whole stream in seconds. Default: none, even if the client has
                one.

        Raises:
            InvalidArgumentError: An argument cannot be sent.
        """
        request = _requests.warm_request(signatures, workers, all_workers)
        return self._graph_stream(self._stubs.graphs.WarmGraphs, request, timeout)

    def ready(self, model: str = "", *, timeout: float | None = None) -> bool:
        """Whether the service can serve now: each model has a worker with its first graphs.

        Checks once. Returns False if the service cannot be reached.

        Args:
            model: Check only this model. Default: all models.
            timeout: Deadline of this call in seconds. Default: the client's.

        Raises:
            ModelNotFoundError: The service has no such model.
        """
        return not self._unready_reason(model, timeout)

    def wait_until_ready(
        self,
        model: str = "",
        *,
        timeout: float | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        """Waits until `ready` returns True. The service may start later than this call.

        Args:
            model: Wait only for this model. Default: all models.
            timeout: Maximum time to wait in seconds. Default: the client's.
            on_wait: Called after each check that found the service not ready, with what is missing.

        Raises:
            DeadlineError: The service was not ready in time; the text says what was missing.
            ModelNotFoundError: The service has no such model.
        """
        deadline = self._endpoint.deadline(timeout)
        clock = NO_RETRIES.begin(deadline)
        while reason := self._unready_reason(model, _readiness.check_timeout(clock.left)):
            if on_wait is not None:
                on_wait(reason)
            if clock.left is not None and clock.left <= _readiness.PAUSE:
                raise _readiness.not_ready(deadline, reason)
            self._connection.pause(_readiness.PAUSE)

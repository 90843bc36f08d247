"""The blocking client."""

import math
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

import grpc

from shaperouter import (
    _convert,
    _prompts,
    _readiness,
    _requests,
    _transcription_events,
    _transcription_requests,
)
from shaperouter._calls import Calls
from shaperouter._channel import DEFAULT_TIMEOUT, Endpoint, channel_options
from shaperouter._errors import (
    DeadlineError,
    InvalidArgumentError,
    ShaperouterError,
    UnavailableError,
)
from shaperouter._generation import Generation
from shaperouter._graph import Graph
from shaperouter._graph_stream import GraphStream
from shaperouter._model import Model
from shaperouter._options import GenerationOptions
from shaperouter._retries import RetryPolicy
from shaperouter._security import FileName, Security
from shaperouter._signature import Signature
from shaperouter._status import cancelled, error_of, forbids_retry
from shaperouter._stream import GenerationStream
from shaperouter._transcription import AudioFormat, Transcription, TranscriptionProgress
from shaperouter._transcription_options import TranscriptionOptions
from shaperouter._transcription_requests import Recording
from shaperouter._transcription_stream import TranscriptionStream
from shaperouter.v1 import (
    generation_pb2,
    generation_pb2_grpc,
    graph_pb2_grpc,
    model_pb2,
    model_pb2_grpc,
    transcription_pb2_grpc,
)

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class Client:
    """A connection to a Shaperouter service, for blocking code.

    The client connects at its first call and reconnects after a loss. A call that cannot reach the
    service is tried four times and fails with `UnavailableError` after about 3 s; `retries` changes
    that. Every method raises `ShaperouterError` or one of its subclasses.

    Threads may share a client. Use it as a context manager, or call `close`.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        tls: bool | None = None,
        ca: FileName | None = None,
        cert: FileName | None = None,
        key: FileName | None = None,
        token: str | None = None,
        retries: int | None = None,
    ) -> None:
        """Creates a client without connecting.

        Args:
            address: ``host:port`` or ``unix:path``. Default: the SHAPEROUTER_ADDRESS variable, or
                127.0.0.1:50051.
            timeout: Default deadline of each call in seconds; ``math.inf`` means none. It is long
                because a starting service first compiles its first graphs.
            tls: Whether to use TLS. Default: True if `ca`, `cert` or `key` is given.
            ca: PEM file with the certificates of the authorities that may sign the service's.
                Default: the public authorities that gRPC knows.
            cert: PEM file with the client's certificate, for a service that asks for one.
            key: PEM file with the certificate's private key.
            token: Identifies the client to a service that asks for tokens. It is sent over TLS or
                to this machine, and never across a network in plain text.
            retries: How many times to repeat a call that failed with a retriable error, within the
                call's deadline. The client waits as long as the service asks for, or increasingly
                long. 0 means never. Streams are not repeated. Default: 3 times after
                `UnavailableError`, and never after `OverloadedError`.

        Raises:
            InvalidArgumentError: The address, the timeout or the number of retries is invalid, a
                file cannot be read, or an argument needs another one.
        """
        security = Security.resolve(tls=tls, ca=ca, cert=cert, key=key, token=token)
        self._endpoint = Endpoint.resolve(address, timeout, security)
        self._retries = RetryPolicy.resolve(retries)
        target, credentials = self._endpoint.address, self._endpoint.credentials
        options = channel_options(target)
        self._channel = (
            grpc.secure_channel(target, credentials, options=options)
            if credentials
            else grpc.insecure_channel(target, options=options)
        )
        self._generation = generation_pb2_grpc.GenerationServiceStub(self._channel)
        self._models = model_pb2_grpc.ModelServiceStub(self._channel)
        self._graphs = graph_pb2_grpc.GraphServiceStub(self._channel)
        self._transcription = transcription_pb2_grpc.TranscriptionServiceStub(self._channel)
        self._health = self._channel.unary_unary(
            _readiness.HEALTH_METHOD,
            request_serializer=_readiness.serialize,
            response_deserializer=_readiness.parse,
        )
        self._closed = threading.Event()
        # One for each `generate` with several prompts that is in progress.
        self._calls: set[Calls] = set()

    @property
    def address(self) -> str:
        """The service's address."""
        return self._endpoint.address

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
            max_concurrency: How many of several prompts may be in progress at a time.
            **options: How to generate; see `GenerationOptions`.

        Raises:
            InvalidArgumentError: The prompt or an option is invalid.
            ModelNotFoundError: The service has no such model.
            OverloadedError: The queue is full.
            UnavailableError: There is no connection, or the worker was lost.
            DeadlineError: The timeout passed before the end.
            PromptsError: Some of several prompts failed, each for one of these reasons.
        """

        def request(prompt: Any) -> generation_pb2.GenerateRequest:
            asked = _requests.Generating(
                prompt=prompt,
                decoder_text=decoder_text,
                decoder_token_ids=decoder_token_ids,
                model=model,
                explain=explain,
                options=options,
            )
            return _requests.generate_request(asked)

        if _prompts.are_several(prompt):
            return self._generate_each(
                _prompts.prepare(prompt, request), timeout, _prompts.concurrency(max_concurrency)
            )
        return _convert.response(self._call(self._generation.Generate, request(prompt), timeout))

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

        Errors of the call are raised while iterating. The client does not repeat a stream that was
        interrupted after its first token.

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
        asked = _requests.Generating(
            prompt=prompt,
            decoder_text=decoder_text,
            decoder_token_ids=decoder_token_ids,
            model=model,
            explain=explain,
            options=options,
        )
        request = _requests.stream_request(asked)
        deadline = self._deadline(timeout)
        return GenerationStream(
            self._generation.GenerateStream(request, timeout=deadline),
            address=self.address,
            deadline=deadline,
            on_stall=on_stall,
        )

    def transcribe(
        self,
        audio: bytes | str | os.PathLike[str],
        *,
        model: str = "",
        audio_format: AudioFormat | str | None = None,
        sample_rate: int | None = None,
        channels: int | None = None,
        timeout: float | None = None,
        **options: Unpack[TranscriptionOptions],
    ) -> Transcription:
        """Transcribes a recording and returns the complete transcript.

        Args:
            audio: A WAV, FLAC, OGG or MP3 file, as its content or its path; or raw samples with
                interleaved channels.
            model: Name of the model. Default: the only one that transcribes.
            audio_format: The format of the recording. Default: a file format, detected from the
                content.
            sample_rate: Samples per second; only for raw samples.
            channels: Number of interleaved channels; only for raw samples. Default: 1.
            timeout: Deadline of this call in seconds. Default: the client's.
            **options: How to transcribe; see `TranscriptionOptions`.

        Raises:
            InvalidArgumentError: The recording or an option is invalid.
            ModelNotFoundError: The service has no such model.
            OverloadedError: The queue is full.
            UnavailableError: There is no connection, or the worker was lost.
            DeadlineError: The timeout passed before the end.
        """
        asked = _transcription_requests.Transcribing(
            model=model,
            audio_format=audio_format,
            sample_rate=sample_rate,
            channels=channels,
            options=options,
        )
        content = _transcription_requests.whole(audio)
        if len(content) <= _transcription_requests.PIECE_BYTES:
            request = _transcription_requests.request(asked, content)
            response = self._call(self._transcription.Transcribe, request, timeout)
            return _transcription_events.response(response)
        with self._transcription_stream(asked, content, timeout, None, None) as stream:
            for _ in stream:
                pass
            return stream.result

    def transcribe_stream(
        self,
        audio: Recording,
        *,
        model: str = "",
        audio_format: AudioFormat | str | None = None,
        sample_rate: int | None = None,
        channels: int | None = None,
        step_seconds: float | None = None,
        timeout: float | None = None,
        on_stall: Callable[[Signature], None] | None = None,
        on_progress: Callable[[TranscriptionProgress], None] | None = None,
        **options: Unpack[TranscriptionOptions],
    ) -> TranscriptionStream:
        """Transcribes a recording and returns segments as they become final.

        Raw samples are transcribed as they arrive, a file once it is complete. Errors of the call,
        and errors from reading the recording, are raised while iterating.

        Args:
            audio: As for `transcribe`, or a binary file or an iterable of bytes, which a thread
                reads as they arrive.
            model: Name of the model. Default: the only one that transcribes.
            audio_format: The format of the recording. Default: a file format, detected from the
                content.
            sample_rate: Samples per second; only for raw samples.
            channels: Number of interleaved channels; only for raw samples. Default: 1.
            step_seconds: Decode an incomplete window after every so many seconds of audio, from 0.5
                to 30, so that segments become final sooner; only for raw samples. Default: only
                whole windows of 30 seconds are decoded.
            timeout: Deadline of the whole stream in seconds. Default: the client's.
            on_stall: Called between segments when the request starts to wait for the compilation of
                a graph.
            on_progress: Called between segments when a window is transcribed.
            **options: How to transcribe; see `TranscriptionOptions`.

        Raises:
            InvalidArgumentError: An argument cannot be sent, or a file cannot be read.
        """
        asked = _transcription_requests.Transcribing(
            model=model,
            audio_format=audio_format,
            sample_rate=sample_rate,
            channels=channels,
            options=options,
            step_seconds=step_seconds,
        )
        return self._transcription_stream(asked, audio, timeout, on_stall, on_progress)

    def models(self, *, timeout: float | None = None) -> list[Model]:
        """Lists the models of the service, ordered by name.

        Args:
            timeout: Deadline of this call in seconds. Default: the client's.
        """
        response = self._call(self._models.ListModels, model_pb2.ListModelsRequest(), timeout)
        return [_convert.model(model) for model in response.models]

    def model(self, name: str, *, timeout: float | None = None) -> Model:
        """Returns one model of the service.

        Args:
            name: Name of the model.
            timeout: Deadline of this call in seconds. Default: the client's.

        Raises:
            ModelNotFoundError: The service has no such model.
        """
        response = self._call(self._models.GetModel, _requests.model_request(name), timeout)
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
        request = _requests.graphs_request(model, include_cold)
        response = self._call(self._graphs.ListGraphs, request, timeout)
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
        request = _requests.watch_request(model, include_cold)
        return self._graph_stream(self._graphs.WatchGraphs, request, timeout)

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
        return self._graph_stream(self._graphs.WarmGraphs, request, timeout)

    def ready(self, model: str = "", *, timeout: float | None = None) -> bool:
        """Whether the service can serve now: each model has a worker with its first graphs.

        Checks once. Returns False if the service cannot be reached.

        Args:
            model: Check only this model. Default: all models.
            timeout: Deadline of this call in seconds. Default: the client's.

        Raises:
            ModelNotFoundError: The service has no such model.
        """
        return not self._lack(model, self._deadline(timeout))

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
        deadline = self._deadline(timeout)
        clock = _readiness.ONCE.begin(deadline)
        while lack := self._lack(model, clock.left):
            if on_wait is not None:
                on_wait(lack)
            if clock.left is not None and clock.left <= _readiness.PAUSE:
                raise _readiness.too_late(deadline, lack)
            if self._closed.wait(_readiness.PAUSE):
                raise cancelled()

    def close(self) -> None:
        """Closes the connection and cancels calls in progress; may be called again."""
        self._closed.set()
        for calls in tuple(self._calls):
            calls.end()
        self._channel.close()

    def __enter__(self) -> Self:
        """Returns the client itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the client."""
        self.close()

    def __repr__(self) -> str:
        """The address, and whether it is closed."""
        return f"<Client {self.address}{' closed' if self._closed.is_set() else ''}>"

    def _call(
        self,
        method: "grpc.UnaryUnaryMultiCallable[_Request, _Response]",
        request: _Request,
        timeout: float | None,
        *,
        policy: RetryPolicy | None = None,
        calls: Calls | None = None,
    ) -> _Response:
        # One of several calls may begin after the client was closed. It is cancelled like the
        # others.
        deadline = self._endpoint.deadline(timeout) if calls else self._deadline(timeout)
        attempts = (policy or self._retries).begin(deadline)
        ended = calls.ended if calls else self._closed
        while True:
            try:
                if calls:
                    return calls.send(method, request, attempts.left)
                return method(request, timeout=attempts.left)
            except ValueError:
                # gRPC raises this for a call on a channel that was closed in the meantime.
                if self._closed.is_set():
                    raise cancelled() from None
                raise
            except grpc.RpcError as error:
                failure = error_of(error, address=self.address, deadline=deadline)
                pause = attempts.pause_after(failure, forbidden=forbids_retry(error))
                if pause is None:
                    raise failure from error
            if ended.wait(pause) or self._closed.is_set():
                raise cancelled()

    def _generate_each(
        self, requests: Sequence[_prompts.Prepared], timeout: float | None, concurrency: int
    ) -> list[Generation]:
        """Sends requests concurrently; an interruption cancels them all."""
        deadline = self._deadline(timeout)
        clock, calls = self._retries.begin(deadline), Calls()

        def send(request: _prompts.Prepared) -> _prompts.Result:
            if isinstance(request, InvalidArgumentError):
                return request
            if self._closed.is_set():
                return cancelled()
            try:
                left = _prompts.time_left(clock.left, deadline)
                method = self._generation.Generate
                return _convert.response(self._call(method, request, left, calls=calls))
            except ShaperouterError as error:
                return error

        self._calls.add(calls)
        with ThreadPoolExecutor(min(concurrency, len(requests))) as pool:
            try:
                results = list(pool.map(send, requests))
            finally:
                self._calls.discard(calls)
                calls.end()
        return _prompts.generations(results)

    def _lack(self, model: str, timeout: float | None) -> str:
        """What the service still needs to be ready; empty if it is ready."""
        limit = _readiness.look_timeout(timeout)
        once = _readiness.ONCE
        try:
            if not model:
                status = self._call(self._health, _readiness.READINESS, limit, policy=once)
                return _readiness.lack_of_service(status)
            request = _requests.model_request(model)
            answer = self._call(self._models.GetModel, request, limit, policy=once)
            return _readiness.lack_of_model(answer.model)
        except (UnavailableError, DeadlineError) as error:
            return str(error)

    def _transcription_stream(
        self,
        asked: _transcription_requests.Transcribing,
        audio: Recording,
        timeout: float | None,
        on_stall: Callable[[Signature], None] | None,
        on_progress: Callable[[TranscriptionProgress], None] | None,
    ) -> TranscriptionStream:
        outgoing = _transcription_requests.Outgoing(asked, audio)
        deadline = self._deadline(timeout)
        return TranscriptionStream(
            self._transcription.TranscribeStream(iter(outgoing), timeout=deadline),
            address=self.address,
            deadline=deadline,
            events=_transcription_events.TranscriptionEvents(on_stall, on_progress),
            outgoing=outgoing,
        )

    def _graph_stream(
        self,
        method: "grpc.UnaryStreamMultiCallable[_Request, Any]",
        request: _Request,
        timeout: float,
    ) -> GraphStream:
        deadline = self._deadline(timeout)
        call = method(request, timeout=deadline)
        return GraphStream(call, address=self.address, deadline=deadline)

    def _deadline(self, timeout: float | None) -> float | None:
        if self._closed.is_set():
            raise RuntimeError("the client is closed")
        return self._endpoint.deadline(timeout)

"""The client for asyncio."""

# ruff: noqa: ASYNC109 (timeouts are gRPC deadlines, which the service knows)

import asyncio
import math
import os
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar, Unpack, overload

import grpc
import grpc.aio
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from shaperouter import (
    _convert,
    _prompts,
    _readiness,
    _requests,
    _transcription_events,
    _transcription_requests,
)
from shaperouter._async_graph_stream import AsyncGraphStream
from shaperouter._async_stream import AsyncGenerationStream, async_errors
from shaperouter._async_transcription_stream import AsyncTranscriptionStream
from shaperouter._channel import DEFAULT_TIMEOUT, Endpoint, channel_options
from shaperouter._errors import (
    DeadlineError,
    InvalidArgumentError,
    ShaperouterError,
    UnavailableError,
)
from shaperouter._generation import Generation
from shaperouter._graph import Graph
from shaperouter._model import Model
from shaperouter._options import GenerationOptions
from shaperouter._retries import RetryPolicy
from shaperouter._security import FileName, Security
from shaperouter._signature import Signature
from shaperouter._status import cancelled, forbids_retry
from shaperouter._transcription import AudioFormat, Transcription, TranscriptionProgress
from shaperouter._transcription_options import TranscriptionOptions
from shaperouter._transcription_requests import Recording
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


class AsyncClient:
    """A connection to a Shaperouter service, for asyncio; see also `Client`.

    It may be created anywhere, and belongs to the event loop of its first call. Cancelling a task
    cancels the call that it awaits. Use the client as an asynchronous context manager, or await
    `close`.
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
        """Creates a client without connecting; arguments and errors are those of `Client`."""
        security = Security.resolve(tls=tls, ca=ca, cert=cert, key=key, token=token)
        self._endpoint = Endpoint.resolve(address, timeout, security)
        self._retries = RetryPolicy.resolve(retries)
        self._connection: _Connection | None = None
        self._closed = False

    @property
    def address(self) -> str:
        """The service's address."""
        return self._endpoint.address

    # A str is also a sequence of str. The first overload makes it one prompt.
    @overload
    async def generate(  # type: ignore[overload-overlap]
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
    async def generate(
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

    async def generate(
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
        """Continues one prompt or several; see ``Client.generate``."""

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
            return await self._generate_each(
                _prompts.prepare(prompt, request), timeout, _prompts.concurrency(max_concurrency)
            )
        method = self._connect().generation.Generate
        return _convert.response(await self._call(method, request(prompt), timeout))

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
    ) -> AsyncGenerationStream:
        """Continues a prompt and returns tokens as they are generated; see ``Client.stream``.

        Not a coroutine: ``async with client.stream(prompt) as stream``.
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
        deadline = self._endpoint.deadline(timeout)
        return AsyncGenerationStream(
            self._connect().generation.GenerateStream(request, timeout=deadline),
            address=self.address,
            deadline=deadline,
            on_stall=on_stall,
        )

    async def transcribe(
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
        """Transcribes a recording; see ``Client.transcribe``."""
        asked = _transcription_requests.Transcribing(
            model=model,
            audio_format=audio_format,
            sample_rate=sample_rate,
            channels=channels,
            options=options,
        )
        content = await asyncio.to_thread(_transcription_requests.whole, audio)
        if len(content) <= _transcription_requests.PIECE_BYTES:
            request = _transcription_requests.request(asked, content)
            method = self._connect().transcription.Transcribe
            return _transcription_events.response(await self._call(method, request, timeout))
        async with self._transcription_stream(asked, content, timeout, None, None) as stream:
            async for _ in stream:
                pass
            return stream.result

    def transcribe_stream(
        self,
        audio: Recording | AsyncIterable[bytes],
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
    ) -> AsyncTranscriptionStream:
        """Transcribes a recording as it arrives; see ``Client.transcribe_stream``.

        Not a coroutine: ``async with client.transcribe_stream(pieces) as stream``. The pieces may
        be an asynchronous iterable. A file or an ordinary iterable is read in the event loop.
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

    async def models(self, *, timeout: float | None = None) -> list[Model]:
        """Lists the models of the service; see ``Client.models``."""
        method = self._connect().models.ListModels
        response = await self._call(method, model_pb2.ListModelsRequest(), timeout)
        return [_convert.model(model) for model in response.models]

    async def model(self, name: str, *, timeout: float | None = None) -> Model:
        """Returns one model of the service; see ``Client.model``."""
        method = self._connect().models.GetModel
        response = await self._call(method, _requests.model_request(name), timeout)
        return _convert.model(response.model)

    async def graphs(
        self, model: str = "", *, include_cold: bool = False, timeout: float | None = None
    ) -> list[Graph]:
        """Lists the graphs of all workers; see ``Client.graphs``."""
        request = _requests.graphs_request(model, include_cold)
        response = await self._call(self._connect().graphs.ListGraphs, request, timeout)
        return [_convert.graph(graph) for graph in response.graphs]

    def watch_graphs(
        self, model: str = "", *, include_cold: bool = False, timeout: float = math.inf
    ) -> AsyncGraphStream:
        """Lists the graphs of all workers, and again after changes; see ``Client.watch_graphs``.

        Not a coroutine: ``async with client.watch_graphs() as stream``.
        """
        request = _requests.watch_request(model, include_cold)
        return self._graph_stream(self._connect().graphs.WatchGraphs, request, timeout)

    def warm_graphs(
        self,
        signatures: Iterable[Signature | str],
        *,
        workers: Iterable[str] = (),
        all_workers: bool = False,
        timeout: float = math.inf,
    ) -> AsyncGraphStream:
        """Makes graphs ready ahead of traffic; see ``Client.warm_graphs``.

        Not a coroutine: ``async with client.warm_graphs(signatures) as stream``.
        """
        request = _requests.warm_request(signatures, workers, all_workers)
        return self._graph_stream(self._connect().graphs.WarmGraphs, request, timeout)

    async def ready(self, model: str = "", *, timeout: float | None = None) -> bool:
        """Whether the service can serve requests now; see ``Client.ready``."""
        return not await self._lack(model, self._endpoint.deadline(timeout))

    async def wait_until_ready(
        self,
        model: str = "",
        *,
        timeout: float | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        """Waits until the service is ready; see ``Client.wait_until_ready``."""
        deadline = self._endpoint.deadline(timeout)
        clock = _readiness.ONCE.begin(deadline)
        while lack := await self._lack(model, clock.left):
            if on_wait is not None:
                on_wait(lack)
            if clock.left is not None and clock.left <= _readiness.PAUSE:
                raise _readiness.too_late(deadline, lack)
            await asyncio.sleep(_readiness.PAUSE)

    async def close(self) -> None:
        """Closes the connection and cancels calls in progress; may be called again."""
        self._closed = True
        if self._connection is not None:
            await self._connection.channel.close()

    async def __aenter__(self) -> Self:
        """Returns the client itself."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the client."""
        await self.close()

    def __repr__(self) -> str:
        """The address, and whether it is closed."""
        return f"<AsyncClient {self.address}{' closed' if self._closed else ''}>"

    async def _call(
        self,
        method: "grpc.aio.UnaryUnaryMultiCallable[_Request, _Response]",
        request: _Request,
        timeout: float | None,
        *,
        policy: RetryPolicy | None = None,
    ) -> _Response:
        deadline = self._endpoint.deadline(timeout)
        attempts = (policy or self._retries).begin(deadline)
        while True:
            try:
                with async_errors(address=self.address, deadline=deadline):
                    return await method(request, timeout=attempts.left)
            except ShaperouterError as error:
                forbidden = forbids_retry(error.__cause__)
                pause = attempts.pause_after(error, forbidden=forbidden)
                if pause is None:
                    raise
            await asyncio.sleep(pause)
            if self._closed:
                raise cancelled()

    async def _generate_each(
        self, requests: Sequence[_prompts.Prepared], timeout: float | None, concurrency: int
    ) -> list[Generation]:
        """Sends requests concurrently; cancelling the task cancels them all."""
        deadline = self._endpoint.deadline(timeout)
        clock, places = self._retries.begin(deadline), asyncio.Semaphore(concurrency)
        method = self._connect().generation.Generate

        async def send(request: _prompts.Prepared) -> _prompts.Result:
            if isinstance(request, InvalidArgumentError):
                return request
            async with places:
                if self._closed:
                    return cancelled()
                try:
                    left = _prompts.time_left(clock.left, deadline)
                    return _convert.response(await self._call(method, request, left))
                except ShaperouterError as error:
                    return error

        return _prompts.generations(await asyncio.gather(*map(send, requests)))

    async def _lack(self, model: str, timeout: float | None) -> str:
        """What the service still needs to be ready; empty if it is ready."""
        limit = _readiness.look_timeout(timeout)
        once, connection = _readiness.ONCE, self._connect()
        try:
            if not model:
                status = await self._call(
                    connection.health, _readiness.READINESS, limit, policy=once
                )
                return _readiness.lack_of_service(status)
            request = _requests.model_request(model)
            answer = await self._call(connection.models.GetModel, request, limit, policy=once)
            return _readiness.lack_of_model(answer.model)
        except (UnavailableError, DeadlineError) as error:
            return str(error)

    def _transcription_stream(
        self,
        asked: _transcription_requests.Transcribing,
        audio: Recording | AsyncIterable[bytes],
        timeout: float | None,
        on_stall: Callable[[Signature], None] | None,
        on_progress: Callable[[TranscriptionProgress], None] | None,
    ) -> AsyncTranscriptionStream:
        outgoing = _transcription_requests.Outgoing(asked, audio)
        deadline = self._endpoint.deadline(timeout)
        return AsyncTranscriptionStream(
            self._connect().transcription.TranscribeStream(aiter(outgoing), timeout=deadline),
            address=self.address,
            deadline=deadline,
            events=_transcription_events.TranscriptionEvents(on_stall, on_progress),
            outgoing=outgoing,
        )

    def _graph_stream(
        self,
        method: "grpc.aio.UnaryStreamMultiCallable[_Request, Any]",
        request: _Request,
        timeout: float,
    ) -> AsyncGraphStream:
        deadline = self._endpoint.deadline(timeout)
        call = method(request, timeout=deadline)
        return AsyncGraphStream(call, address=self.address, deadline=deadline)

    def _connect(self) -> "_Connection":
        """The channel and its stubs, created in the event loop that uses them."""
        if self._closed:
            raise RuntimeError("the client is closed")
        if self._connection is None:
            asyncio.get_running_loop()  # a clear error if no loop is running
            target, credentials = self._endpoint.address, self._endpoint.credentials
            options = channel_options(target)
            channel = (
                grpc.aio.secure_channel(target, credentials, options=options)
                if credentials
                else grpc.aio.insecure_channel(target, options=options)
            )
            self._connection = _Connection(
                channel=channel,
                generation=generation_pb2_grpc.GenerationServiceStub(channel),
                models=model_pb2_grpc.ModelServiceStub(channel),
                graphs=graph_pb2_grpc.GraphServiceStub(channel),
                transcription=transcription_pb2_grpc.TranscriptionServiceStub(channel),
                health=channel.unary_unary(
                    _readiness.HEALTH_METHOD,
                    request_serializer=_readiness.serialize,
                    response_deserializer=_readiness.parse,
                ),
            )
        return self._connection


class _Connection(NamedTuple):
    channel: grpc.aio.Channel
    generation: "generation_pb2_grpc.GenerationServiceAsyncStub"
    models: "model_pb2_grpc.ModelServiceAsyncStub"
    graphs: "graph_pb2_grpc.GraphServiceAsyncStub"
    transcription: "transcription_pb2_grpc.TranscriptionServiceAsyncStub"
    health: "grpc.aio.UnaryUnaryMultiCallable[StringValue, Int32Value]"

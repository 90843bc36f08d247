# Generated from _async_base_client.py by `make blocking-client`. Do not edit.

"""The part of the client below its public calls: settings, retries and streams."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from shaperouter import (
    _convert,
    _prompts,
    _readiness,
    _requests,
    _transcription_events,
    _transcription_requests,
)
from shaperouter._connection import (
    Attempt,
    Calls,
    Connection,
    errors,
    exchange,
)
from shaperouter._endpoint import DEFAULT_TIMEOUT, Endpoint
from shaperouter._errors import (
    DeadlineError,
    InvalidArgumentError,
    ShaperouterError,
    UnavailableError,
)
from shaperouter._generation import Generation
from shaperouter._repeated_call import RepeatedCall
from shaperouter._retries import NO_RETRIES, ONE_ATTEMPT, RetryPolicy
from shaperouter._security import FileName, Security
from shaperouter._signature import Signature
from shaperouter._streams import (
    GenerationStream,
    GraphStream,
    TranscriptionStream,
)
from shaperouter._transcription import Transcription, TranscriptionProgress
from shaperouter._transcription_requests import Recording
from shaperouter.v1 import (
    generation_pb2,
    generation_pb2_grpc,
    graph_pb2_grpc,
    inference_pb2,
    inference_pb2_grpc,
    model_pb2_grpc,
    transcription_pb2_grpc,
)

_RequestT = TypeVar("_RequestT")
_ResponseT = TypeVar("_ResponseT")
_ResultT = TypeVar("_ResultT")


class Stubs:
    """The methods of the service."""

    def __init__(self, channel: grpc.Channel) -> None:
        """Creates them on a channel."""
        self.generation = generation_pb2_grpc.GenerationServiceStub(channel)
        self.inference = inference_pb2_grpc.InferenceServiceStub(channel)
        self.models = model_pb2_grpc.ModelServiceStub(channel)
        self.graphs = graph_pb2_grpc.GraphServiceStub(channel)
        self.transcription = transcription_pb2_grpc.TranscriptionServiceStub(channel)
        self.health = channel.unary_unary(
            _readiness.HEALTH_METHOD,
            request_serializer=_readiness.serialize,
            response_deserializer=_readiness.parse,
        )


class BaseClient:
    """Base of the client: connects, makes calls with their retries, and opens streams."""

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
                long. 0 means never. A stream is repeated only as long as nothing of its answer
                has arrived. Not repeated are streams that send a recording, and calls that change
                which models are served. Default: 3 times after `UnavailableError`, and never after
                `OverloadedError`.

        Raises:
            InvalidArgumentError: The address, the timeout or the number of retries is invalid, a
                file cannot be read, or an argument needs another one.
        """
        security = Security.resolve(tls=tls, ca=ca, cert=cert, key=key, token=token)
        self._endpoint = Endpoint.resolve(address, timeout, security)
        self._retries = RetryPolicy.resolve(retries)
        self._connection = Connection(self._endpoint, Stubs)

    @property
    def address(self) -> str:
        """The service's address."""
        return self._endpoint.address

    def close(self) -> None:
        """Closes the connection and cancels calls in progress; may be called again."""
        self._connection.close()

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
        closed = " closed" if self._connection.cancelled else ""
        return f"<{type(self).__name__} {self.address}{closed}>"

    @property
    def _stubs(self) -> Stubs:
        return self._connection.stubs

    def _call(
        self,
        method: "grpc.UnaryUnaryMultiCallable[_RequestT, _ResponseT]",
        request: _RequestT,
        timeout: float | None,
        *,
        retries: RetryPolicy | None = None,
        calls: Calls | None = None,
        whole: float | None = None,
    ) -> _ResponseT:
        """Makes a call, and makes it again after failures that the retry policy covers.

        Args:
            method: The service's method.
            request: Its request.
            timeout: Deadline of all attempts together in seconds; None for the client's.
            retries: Default: the client's policy.
            calls: The calls to cancel this one with. Default: the client's.
            whole: The caller's timeout, which errors name, if part of it had passed before this
                call. Default: `timeout`.
        """
        calls = calls or self._connection
        deadline = self._endpoint.deadline(timeout)
        named = deadline if whole is None else whole

        def attempt(left: float | None) -> _ResponseT:
            with errors(address=self.address, deadline=named):
                return calls.send(method, request, left)

        return self._repeat(attempt, deadline, retries or self._retries, calls)

    def _repeat(
        self,
        attempt: Attempt[_ResultT],
        deadline: float | None,
        retries: RetryPolicy,
        calls: Calls,
    ) -> _ResultT:
        """Makes an attempt, and another one after each failure that the retry policy covers."""
        attempts = retries.begin(deadline)
        while True:
            try:
                return attempt(attempts.left)
            except ShaperouterError as error:
                pause = attempts.pause_after(error)
                if pause is None:
                    raise
            calls.pause(pause)

    def _infer(
        self, request: inference_pb2.InferRequest, timeout: float | None
    ) -> inference_pb2.InferResponse:
        return self._call(self._stubs.inference.Infer, request, timeout)

    def _generation_stream(
        self,
        request: generation_pb2.GenerateStreamRequest,
        timeout: float | None,
        on_stall: Callable[[Signature], None] | None,
    ) -> GenerationStream:
        method = self._stubs.generation.GenerateStream
        return GenerationStream(self._repeated(method, request, timeout), on_stall=on_stall)

    def _generate_each(
        self, requests: Sequence[_prompts.Prepared], timeout: float | None, concurrency: int
    ) -> list[Generation]:
        """Sends requests concurrently. An interruption or a cancelled task cancels them all."""
        method = self._stubs.generation.Generate
        deadline = self._endpoint.deadline(timeout)
        clock = self._retries.begin(deadline)

        def send(calls: Calls, request: _prompts.Prepared) -> _prompts.Result:
            if isinstance(request, InvalidArgumentError):
                return request
            try:
                left = _prompts.time_left(clock.left, deadline)
                response = self._call(method, request, left, calls=calls, whole=deadline)
                return _convert.response(response)
            except ShaperouterError as error:
                return error

        return _prompts.generations(self._connection.gather(send, requests, concurrency))

    def _unready_reason(self, model: str, timeout: float | None) -> str:
        """Why the service is not ready; empty if it is."""
        stubs, retries = self._stubs, NO_RETRIES  # the caller repeats checks
        try:
            if not model:
                status = self._call(stubs.health, _readiness.READINESS, timeout, retries=retries)
                return _readiness.reason_of_service(status)
            request = _requests.model_request(model)
            answer = self._call(stubs.models.GetModel, request, timeout, retries=retries)
            return _readiness.reason_of_model(answer.model)
        except (UnavailableError, DeadlineError) as error:
            return str(error)

    def _transcribe_in_pieces(
        self,
        arguments: _transcription_requests.TranscriptionArguments,
        content: bytes,
        timeout: float | None,
    ) -> Transcription:
        """Sends a recording as a stream, and again as a call with a single answer would be."""
        deadline = self._endpoint.deadline(timeout)

        def attempt(left: float | None) -> Transcription:
            with self._transcription_stream(
                arguments, content, deadline=deadline, left=left
            ) as stream:
                for _ in stream:
                    pass
                return stream.result

        return self._repeat(attempt, deadline, self._retries, self._connection)

    def _transcription_stream(
        self,
        arguments: _transcription_requests.TranscriptionArguments,
        audio: Recording,
        *,
        deadline: float | None,
        left: float | None,
        on_stall: Callable[[Signature], None] | None = None,
        on_progress: Callable[[TranscriptionProgress], None] | None = None,
    ) -> TranscriptionStream:
        """Starts a stream that may take `left` seconds of the call's `deadline`."""
        messages = _transcription_requests.RecordingMessages(arguments, audio)
        method = self._stubs.transcription.TranscribeStream
        return TranscriptionStream(
            RepeatedCall(
                lambda seconds: exchange(method, iter(messages), seconds),
                ONE_ATTEMPT.begin(left),  # the recording may be readable only once
                self._connection,
                address=self.address,
                deadline=deadline,
            ),
            events=_transcription_events.TranscriptionEvents(on_stall, on_progress),
            messages=messages,
        )

    def _graph_stream(
        self,
        method: "grpc.UnaryStreamMultiCallable[_RequestT, Any]",
        request: _RequestT,
        timeout: float,
    ) -> GraphStream:
        return GraphStream(self._repeated(method, request, timeout))

    def _repeated(
        self,
        method: "grpc.UnaryStreamMultiCallable[_RequestT, _ResponseT]",
        request: _RequestT,
        timeout: float | None,
    ) -> RepeatedCall[_ResponseT]:
        """Starts a stream, which is started again as the retry policy says."""
        deadline = self._endpoint.deadline(timeout)
        return RepeatedCall(
            lambda seconds: method(request, timeout=seconds),
            self._retries.begin(deadline),
            self._connection,
            address=self.address,
            deadline=deadline,
        )

"""The blocking client."""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import grpc

from shaperouter import _convert, _requests, _transcription_events, _transcription_requests
from shaperouter._channel import DEFAULT_TIMEOUT, Endpoint, channel_options
from shaperouter._generation import Generation
from shaperouter._graph import Graph
from shaperouter._graph_stream import GraphStream
from shaperouter._model import Model
from shaperouter._options import GenerationOptions
from shaperouter._security import FileName, Security
from shaperouter._signature import Signature
from shaperouter._status import error_of
from shaperouter._stream import GenerationStream
from shaperouter._transcription import AudioFormat, Transcription, TranscriptionProgress
from shaperouter._transcription_options import TranscriptionOptions
from shaperouter._transcription_requests import Recording
from shaperouter._transcription_stream import TranscriptionStream
from shaperouter.v1 import (
    generation_pb2_grpc,
    graph_pb2_grpc,
    model_pb2,
    model_pb2_grpc,
    transcription_pb2_grpc,
)

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class Client:
    """A connection to a Shaperouter, for code that blocks.

    The connection is made at the first call and again after it was lost. A call that cannot reach
    the service is tried four times and fails with `UnavailableError` after about 2.5 s. Every
    method raises the errors of `ShaperouterError`'s tree.

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
    ) -> None:
        """Opens nothing yet.

        Args:
            address: ``host:port`` or ``unix:path``. Default: the SHAPEROUTER_ADDRESS variable, or
                127.0.0.1:50051.
            timeout: Default deadline of each call in seconds, ``math.inf`` for none. Generous,
                because a cold service compiles at the first request of a shape.
            tls: Whether to speak TLS. Default: if any of the next three is given.
            ca: File of the certificates that the service's must come from, in PEM. Default: those
                of the public authorities that gRPC knows.
            cert: File of the certificate to show to a service that asks for one, in PEM.
            key: File of its private key, in PEM.
            token: Who calls, for a service that asks for tokens. Sent over TLS, and to this
                machine, but never across a network in plain text.

        Raises:
            InvalidArgumentError: The address or the timeout cannot be right, a file cannot be read,
                or one argument needs another.
        """
        security = Security.resolve(tls=tls, ca=ca, cert=cert, key=key, token=token)
        self._endpoint = Endpoint.resolve(address, timeout, security)
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
        self._closed = False

    @property
    def address(self) -> str:
        """Where the service is."""
        return self._endpoint.address

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        decoder_text: str | None = None,
        decoder_token_ids: Sequence[int] | None = None,
        model: str = "",
        explain: bool = False,
        timeout: float | None = None,
        **options: Unpack[GenerationOptions],
    ) -> Generation:
        """Continues a prompt and returns the whole generation when it has ended.

        Args:
            prompt: The text, or its token ids. Not empty. For a model with an encoder it is the
                source, what the encoder reads.
            decoder_text: Of a model with an encoder, what the new text continues. Default: nothing.
            decoder_token_ids: The same as token ids.
            model: Name of the model. Default: the service's only one.
            explain: Have the result's `routes` tell how the request was routed.
            timeout: Deadline of this call in seconds. Default: the client's.
            **options: How to generate; see `GenerationOptions`.

        Raises:
            InvalidArgumentError: The prompt or an option is wrong.
            ModelNotFoundError: The service has no such model.
            OverloadedError: The queue is full.
            UnavailableError: No connection, or the worker was lost.
            DeadlineError: The timeout ended first.
        """
        asked = _requests.Generating(
            prompt=prompt,
            decoder_text=decoder_text,
            decoder_token_ids=decoder_token_ids,
            model=model,
            explain=explain,
            options=options,
        )
        request = _requests.generate_request(asked)
        return _convert.response(self._call(self._generation.Generate, request, timeout))

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
        """Continues a prompt and gives the tokens as they are made.

        Errors of the call are raised while iterating. A stream that was interrupted after its first
        token is never repeated by itself.

        Args:
            prompt: The text, or its token ids. Not empty. For a model with an encoder it is the
                source, what the encoder reads.
            decoder_text: Of a model with an encoder, what the new text continues. Default: nothing.
            decoder_token_ids: The same as token ids.
            model: Name of the model. Default: the service's only one.
            explain: Have the result's `routes` tell how the request was routed.
            timeout: Deadline of the whole stream in seconds. Default: the client's.
            on_stall: Called, between tokens, when the request starts to wait for the compilation of
                a graph.
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
        """Writes down what is said in a recording, and returns all of it at the end.

        Args:
            audio: A WAV, FLAC, OGG or MP3 file, by its content or its path; or bare samples, of all
                channels at one time, then those of the next.
            model: Name of the model. Default: the service's only one.
            audio_format: What the recording is. Default: one of the files, as its content says.
            sample_rate: Of bare samples: how many a second.
            channels: Of bare samples: how many at a time. Default: 1.
            timeout: Deadline of this call in seconds. Default: the client's.
            **options: How to transcribe; see `TranscriptionOptions`.

        Raises:
            InvalidArgumentError: The recording or an option is wrong.
            ModelNotFoundError: The service has no such model.
            OverloadedError: The queue is full.
            UnavailableError: No connection, or the worker was lost.
            DeadlineError: The timeout ended first.
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
        """Writes down what is said in a recording, and gives segments as they become final.

        Bare samples are transcribed as they come in, a file once it is whole. Errors of the call,
        and what the recording itself raises, are raised while iterating.

        Args:
            audio: As for `transcribe`, or a binary file or pieces of bytes, which are read in a
                thread as they come.
            model: Name of the model. Default: the service's only one.
            audio_format: What the recording is. Default: one of the files, as its content says.
            sample_rate: Of bare samples: how many a second.
            channels: Of bare samples: how many at a time. Default: 1.
            step_seconds: Of bare samples: decode what there is of a window each time that so many
                seconds came, from 0.5 to 30, so that segments are final sooner. Default: whole
                windows, of 30 seconds.
            timeout: Deadline of the whole stream in seconds. Default: the client's.
            on_stall: Called, between segments, when the request starts to wait for the compilation
                of a graph.
            on_progress: Called, between segments, when a window is transcribed.
            **options: How to transcribe; see `TranscriptionOptions`.

        Raises:
            InvalidArgumentError: An argument cannot be sent, or a file not be read.
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
        """The models of the service, in order of name.

        Args:
            timeout: Deadline of this call in seconds. Default: the client's.
        """
        response = self._call(self._models.ListModels, model_pb2.ListModelsRequest(), timeout)
        return [_convert.model(model) for model in response.models]

    def model(self, name: str, *, timeout: float | None = None) -> Model:
        """One model of the service.

        Args:
            name: Its name.
            timeout: Deadline of this call in seconds. Default: the client's.

        Raises:
            ModelNotFoundError: The service has no such model.
        """
        response = self._call(self._models.GetModel, _requests.model_request(name), timeout)
        return _convert.model(response.model)

    def graphs(
        self, model: str = "", *, include_cold: bool = False, timeout: float | None = None
    ) -> list[Graph]:
        """The graphs of all workers, in order of model, kind, beams, rows, length and worker.

        Args:
            model: Only graphs of this model. Default: of all.
            include_cold: Also those that nobody has asked for yet.
            timeout: Deadline of this call in seconds. Default: the client's.
        """
        request = _requests.graphs_request(model, include_cold)
        response = self._call(self._graphs.ListGraphs, request, timeout)
        return [_convert.graph(graph) for graph in response.graphs]

    def watch_graphs(
        self, model: str = "", *, include_cold: bool = False, timeout: float = math.inf
    ) -> GraphStream:
        """The graphs of all workers, as `graphs` lists them, at once and after changes.

        Lists come at most five times a second and end only with the service. Errors of the call are
        raised while iterating.

        Args:
            model: Only graphs of this model. Default: of all.
            include_cold: Also those that nobody has asked for yet.
            timeout: Deadline of the whole stream in seconds. Default: none, whatever the client's.

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
        """Has graphs made ready ahead of traffic, and tells how it goes.

        Each list has one graph for each signature and worker, in the order of the signatures; the
        last comes when each is ready or has failed, for the reason in its `error`. Ending the
        stream early leaves them to go on. Errors of the call are raised while iterating.

        Args:
            signatures: Which, as values or in the short form of ``Signature.parse``; from 1 to
                1000, all of the ladders of their models.
            workers: Names of the workers to have them on. Default: for each signature the one that
                requests for it go to first.
            all_workers: Have them on all workers; not together with `workers`.
            timeout: Deadline of the whole stream in seconds. Default: none, whatever the client's.

        Raises:
            InvalidArgumentError: An argument cannot be sent.
        """
        request = _requests.warm_request(signatures, workers, all_workers)
        return self._graph_stream(self._graphs.WarmGraphs, request, timeout)

    def close(self) -> None:
        """Closes the connection and cancels the calls that are under way; may be repeated."""
        self._closed = True
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
        return f"<Client {self.address}{' closed' if self._closed else ''}>"

    def _call(
        self,
        method: "grpc.UnaryUnaryMultiCallable[_Request, _Response]",
        request: _Request,
        timeout: float | None,
    ) -> _Response:
        deadline = self._deadline(timeout)
        try:
            return method(request, timeout=deadline)
        except grpc.RpcError as error:
            raise error_of(error, address=self.address, deadline=deadline) from error

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
        if self._closed:
            raise RuntimeError("the client is closed")
        return self._endpoint.deadline(timeout)

"""A fake service that plays a script: a real gRPC server in this process, without TensorFlow."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from harness.fake_transcriber import FakeTranscriber
from harness.waiting import TIMEOUT, wait_until
from shaperouter import Client
from shaperouter.v1 import (
    generation_pb2,
    generation_pb2_grpc,
    graph_pb2,
    graph_pb2_grpc,
    inference_pb2,
    inference_pb2_grpc,
    model_pb2,
    model_pb2_grpc,
    signature_pb2,
)

REQUEST_ID = "req-7"

Event = generation_pb2.GenerateStreamResponse
Step = Event | Callable[[grpc.ServicerContext], None]
GraphStep = list[graph_pb2.Graph] | Callable[[grpc.ServicerContext], None]


class Call:
    """A call that the fake has received."""

    finished = False  # whether its script was played to the end


class FakeShaperouter(
    generation_pb2_grpc.GenerationServiceServicer,
    model_pb2_grpc.ModelServiceServicer,
    graph_pb2_grpc.GraphServiceServicer,
    inference_pb2_grpc.InferenceServiceServicer,
):
    """Plays `script` for each stream, and answers unary generations with its text and tokens.

    A step of the script is an event to send or a function to call, which may wait or fail.
    """

    def __init__(self) -> None:
        """Listens on a free port; the script is one stall, two tokens and the completion."""
        self.requests: list[Any] = []  # messages of any method
        self.metadata: list[dict[str, str]] = []  # of each request
        self.sends_header = True  # x-request-id, before anything else
        self.entered = threading.Event()  # a call has begun
        self.cancelled = threading.Event()  # a call ended before its script did
        self.released = threading.Event()  # lets calls that hold continue
        self.script: list[Step] = [
            self.stall(signature_pb2.GRAPH_KIND_PREFILL, 1, 16),
            self.delta(" a", 5),
            self.delta(" library", 7, 8),
            self.completion(),
        ]
        self.response = generation_pb2.GenerateResponse(
            sequences=[
                generation_pb2.Sequence(
                    text=" a library",
                    token_ids=[5, 7, 8],
                    finish_reason=generation_pb2.FINISH_REASON_LENGTH,
                )
            ],
            completion=self.completion().completion.completion,
        )
        self.answer: Callable[[generation_pb2.GenerateRequest], generation_pb2.GenerateResponse]
        self.answer = lambda request: self.response
        self.before_answer: Callable[[grpc.ServicerContext], None] = lambda context: None
        self.before_models: Callable[[grpc.ServicerContext], None] = lambda context: None
        self.before_inference: Callable[[grpc.ServicerContext], None] = lambda context: None
        self.loaded = model_pb2.Model()
        self.models = [
            model_pb2.Model(
                name="demo",
                family="gpt2",
                tokenizer="GPT2Tokenizer",
                vocab_size=8192,
                max_length=256,
                default_options=generation_pb2.GenerationOptions(
                    max_new_tokens=64,
                    temperature=1.0,
                    early_stopping=generation_pb2.EARLY_STOPPING_NEVER,
                    eos_token_ids=[0],
                    logit_bias=[generation_pb2.LogitBias(token_id=3, bias=-0.5)],
                    bad_words_token_ids=[generation_pb2.TokenIds(ids=[1, 2])],
                ),
                dtype="float32",
                parameters=6_291_456,
                weight_bytes=25_165_824,
                kv_cache_bytes=8_388_608,
                kv_cache_bytes_per_token=16_384,
                slots=4,
                ladders=model_pb2.Ladders(
                    prefill_lengths=[16, 256],
                    lanes=[
                        model_pb2.LaneLadders(
                            beams=1,
                            decode_rows=[1, 4],
                            decode_lengths=[64, 256],
                        )
                    ],
                    prefill_rows=[1, 2],
                    prefill_batch_tokens=256,
                ),
                ready_workers=1,
            )
        ]
        self.graphs = [
            graph_pb2.Graph(
                signature=self.signature(signature_pb2.GRAPH_KIND_DECODE, 4, 256),
                worker="worker-0",
                state=graph_pb2.GRAPH_STATE_READY,
                traces=1,
                compiles=1,
                trace_seconds=0.75,
                compile_seconds=graph_pb2.Histogram(bounds=[1, 10], counts=[0, 1, 0], sum=2.5),
                stall_seconds=graph_pb2.Histogram(bounds=[1, 10], counts=[0, 2, 0], sum=5.0),
                device_seconds=graph_pb2.Histogram(bounds=[0.01], counts=[30, 10], sum=0.4),
            )
        ]
        self.inference = inference_pb2.InferResponse()
        self.graph_updates: list[GraphStep] = [  # the lists of watching and warming
            [self.graph(graph_pb2.GRAPH_STATE_TRACING)],
            [self.graph(graph_pb2.GRAPH_STATE_READY)],
        ]
        self._health = health.HealthServicer()
        self.set_ready(True)
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        generation_pb2_grpc.add_GenerationServiceServicer_to_server(self, self._server)
        model_pb2_grpc.add_ModelServiceServicer_to_server(self, self._server)
        graph_pb2_grpc.add_GraphServiceServicer_to_server(self, self._server)
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._folder = tempfile.TemporaryDirectory()
        self.unix_address = f"unix:{self._folder.name}/s"
        self._server.add_insecure_port(self.unix_address)

    def set_ready(self, ready: bool) -> None:
        """Sets whether all models have workers."""
        status = health_pb2.HealthCheckResponse
        self._health.set("readiness", status.SERVING if ready else status.NOT_SERVING)

    def listen_with_tls(self, credentials: grpc.ServerCredentials) -> str:
        """Adds a port before the start and returns its address."""
        return f"127.0.0.1:{self._server.add_secure_port('127.0.0.1:0', credentials)}"

    def start(self) -> None:
        """Starts serving."""
        self._server.start()

    def stop(self) -> None:
        """Ends all calls and waits until the server has stopped."""
        self.released.set()
        self._server.stop(None).wait(TIMEOUT)
        self._folder.cleanup()

    # Events of the script.

    @staticmethod
    def signature(
        kind: signature_pb2.GraphKind, rows: int, length: int, beams: int = 1
    ) -> signature_pb2.Signature:
        return signature_pb2.Signature(
            model="demo", kind=kind, rows=rows, length=length, beams=beams
        )

    def graph(
        self,
        state: graph_pb2.GraphState,
        *,
        rows: int = 4,
        length: int = 256,
        beams: int = 1,
        worker: str = "worker-0",
        seconds: float = 0.0,
        **fields: Any,
    ) -> graph_pb2.Graph:
        """A decode graph with some seconds of device time."""
        return graph_pb2.Graph(
            signature=self.signature(signature_pb2.GRAPH_KIND_DECODE, rows, length, beams),
            worker=worker,
            state=state,
            device_seconds=graph_pb2.Histogram(bounds=[1], counts=[1, 0], sum=seconds),
            **fields,
        )

    def stall(self, kind: signature_pb2.GraphKind, rows: int, length: int) -> Event:
        return Event(stall=generation_pb2.Stall(signature=self.signature(kind, rows, length)))

    @staticmethod
    def delta(text: str, *token_ids: int, sequence: int = 0) -> Event:
        return Event(delta=generation_pb2.Delta(text=text, token_ids=token_ids, sequence=sequence))

    @staticmethod
    def logprobs(token_id: int, logprob: float) -> generation_pb2.TokenLogprobs:
        chosen = generation_pb2.TokenLogprob(token_id=token_id, logprob=logprob)
        likeliest = generation_pb2.TokenLogprob(token_id=1, logprob=-0.25)
        return generation_pb2.TokenLogprobs(chosen=chosen, top=[likeliest])

    def completion(self, *scores: float) -> Event:
        """The completion; with scores, that of beam search."""
        return Event(
            completion=generation_pb2.StreamCompletion(
                sequences=[
                    generation_pb2.SequenceEnd(
                        finish_reason=generation_pb2.FINISH_REASON_LENGTH, score=score
                    )
                    for score in scores or (None,)
                ],
                completion=generation_pb2.Completion(
                    request_id=REQUEST_ID,
                    model="demo",
                    seed=2**62 + 1,
                    usage=generation_pb2.Usage(
                        prompt_tokens=3, padded_prompt_tokens=16, generated_tokens=3
                    ),
                    timings=generation_pb2.Timings(
                        route_seconds=0.0625,
                        queue_seconds=0.125,
                        stall_seconds=2.5,
                        prefill_seconds=0.25,
                        decode_seconds=0.5,
                        time_to_first_token_seconds=3.0,
                        total_seconds=3.5,
                    ),
                    graphs=[
                        generation_pb2.GraphUse(
                            asked=self.signature(signature_pb2.GRAPH_KIND_DECODE, 1, 64),
                            served=self.signature(signature_pb2.GRAPH_KIND_DECODE, 4, 256),
                            calls=2,
                            device_seconds=0.0625,
                        )
                    ],
                    worker="worker-0",
                ),
            )
        )

    def route(self) -> generation_pb2.Route:
        """Two options to serve a run: a ready cover, and a tight cover that had to be compiled."""
        prefill = self.signature(signature_pb2.GRAPH_KIND_PREFILL, 1, 16)
        return generation_pb2.Route(
            options=[
                generation_pb2.RouteOption(
                    worker="worker-0",
                    prefill=prefill,
                    decode=self.signature(signature_pb2.GRAPH_KIND_DECODE, 4, 256, 4),
                    queue_seconds=0.125,
                    prefill_seconds=0.0625,
                    decode_seconds=0.5,
                    total_seconds=0.6875,
                ),
                generation_pb2.RouteOption(
                    worker="worker-1",
                    prefill=prefill,
                    decode=self.signature(signature_pb2.GRAPH_KIND_DECODE, 1, 64, 4),
                    stall_seconds=2.5,
                    prefill_seconds=0.0625,
                    decode_seconds=0.25,
                    total_seconds=2.8125,
                ),
            ]
        )

    def hold(self, context: grpc.ServicerContext) -> None:
        """A step that waits until the test releases it, or its own call ends."""
        wait_until(lambda: self.released.is_set() or not context.is_active())

    @staticmethod
    def fail(
        code: grpc.StatusCode, message: str, *details: Message
    ) -> Callable[[grpc.ServicerContext], None]:
        """A step that ends the call with an error."""
        status = status_pb2.Status(code=getattr(code_pb2, code.name), message=message)
        for detail in details:
            packed = any_pb2.Any()
            packed.Pack(detail)
            status.details.append(packed)

        def step(context: grpc.ServicerContext) -> None:
            # The id again: gRPC's asyncio API sometimes loses a header that comes with the status.
            context.set_trailing_metadata(
                (
                    ("grpc-status-details-bin", status.SerializeToString()),
                    ("x-request-id", REQUEST_ID),
                )
            )
            context.abort(code, message)

        return step

    # The services.

    def Generate(  # noqa: N802 (gRPC's name)
        self, request: generation_pb2.GenerateRequest, context: grpc.ServicerContext
    ) -> generation_pb2.GenerateResponse:
        call = self._enter(request, context)
        self.before_answer(context)
        answer = self.answer(request)
        call.finished = True
        return answer

    def GenerateStream(  # noqa: N802 (gRPC's name)
        self, request: generation_pb2.GenerateStreamRequest, context: grpc.ServicerContext
    ) -> Iterator[Event]:
        call = self._enter(request, context)
        for step in list(self.script):
            if isinstance(step, Event):
                yield step
            else:
                step(context)
        call.finished = True

    def ListModels(  # noqa: N802 (gRPC's name)
        self, request: model_pb2.ListModelsRequest, context: grpc.ServicerContext
    ) -> model_pb2.ListModelsResponse:
        self._enter(request, context)
        self.before_models(context)
        return model_pb2.ListModelsResponse(models=self.models)

    def Infer(  # noqa: N802 (gRPC's name)
        self, request: inference_pb2.InferRequest, context: grpc.ServicerContext
    ) -> inference_pb2.InferResponse:
        """Answers with `inference`."""
        self._enter(request, context)
        self.before_inference(context)
        return self.inference

    def GetModel(  # noqa: N802 (gRPC's name)
        self, request: model_pb2.GetModelRequest, context: grpc.ServicerContext
    ) -> model_pb2.GetModelResponse:
        self._enter(request, context)
        self.before_models(context)
        for model in self.models:
            if request.name in ("", model.name):
                return model_pb2.GetModelResponse(model=model)
        context.abort(grpc.StatusCode.NOT_FOUND, f"model: no model {request.name!r}; have demo")
        raise AssertionError

    def LoadModel(  # noqa: N802 (gRPC's name)
        self, request: model_pb2.LoadModelRequest, context: grpc.ServicerContext
    ) -> model_pb2.LoadModelResponse:
        """Answers with `loaded`."""
        self._enter(request, context)
        self.before_models(context)
        return model_pb2.LoadModelResponse(model=self.loaded)

    def UnloadModel(  # noqa: N802 (gRPC's name)
        self, request: model_pb2.UnloadModelRequest, context: grpc.ServicerContext
    ) -> model_pb2.UnloadModelResponse:
        self._enter(request, context)
        self.before_models(context)
        return model_pb2.UnloadModelResponse()

    def SetAlias(  # noqa: N802 (gRPC's name)
        self, request: model_pb2.SetAliasRequest, context: grpc.ServicerContext
    ) -> model_pb2.SetAliasResponse:
        self._enter(request, context)
        self.before_models(context)
        return model_pb2.SetAliasResponse()

    def ListGraphs(  # noqa: N802 (gRPC's name)
        self, request: graph_pb2.ListGraphsRequest, context: grpc.ServicerContext
    ) -> graph_pb2.ListGraphsResponse:
        self._enter(request, context)
        return graph_pb2.ListGraphsResponse(graphs=self.graphs)

    def WatchGraphs(  # noqa: N802 (gRPC's name)
        self, request: graph_pb2.WatchGraphsRequest, context: grpc.ServicerContext
    ) -> Iterator[graph_pb2.WatchGraphsResponse]:
        for graphs in self._play_graphs(request, context):
            yield graph_pb2.WatchGraphsResponse(graphs=graphs)

    def WarmGraphs(  # noqa: N802 (gRPC's name)
        self, request: graph_pb2.WarmGraphsRequest, context: grpc.ServicerContext
    ) -> Iterator[graph_pb2.WarmGraphsResponse]:
        for graphs in self._play_graphs(request, context):
            yield graph_pb2.WarmGraphsResponse(graphs=graphs)

    def _play_graphs(
        self, request: Message, context: grpc.ServicerContext
    ) -> Iterator[list[graph_pb2.Graph]]:
        call = self._enter(request, context)
        for step in self.graph_updates:
            if isinstance(step, list):
                yield step
            else:
                step(context)
        call.finished = True

    def _enter(self, request: Message, context: grpc.ServicerContext) -> Call:
        call = Call()

        def ended() -> None:
            if not call.finished:
                self.cancelled.set()

        if not context.add_callback(ended):
            ended()
        self.metadata.append(dict(context.invocation_metadata()))
        self.requests.append(request)
        if self.sends_header:
            context.send_initial_metadata((("x-request-id", REQUEST_ID),))
        self.entered.set()
        return call


@pytest.fixture
def fake() -> Iterator[FakeShaperouter]:
    """A fake that is serving."""
    server = FakeShaperouter()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def unstarted() -> Iterator[FakeShaperouter]:
    """A fake that the test starts."""
    server = FakeShaperouter()
    yield server
    server.stop()


@pytest.fixture
def transcriber() -> Iterator[FakeTranscriber]:
    """A fake transcription service that is serving."""
    transcriber = FakeTranscriber()
    yield transcriber
    transcriber.stop()


@pytest.fixture
def client(fake: FakeShaperouter) -> Iterator[Client]:
    """A client of the fake, with a deadline that ends a test that hangs."""
    with Client(fake.address, timeout=TIMEOUT) as client:
        yield client


@pytest.fixture
def unused_address() -> Iterator[str]:
    """An address where nothing listens or can start to listen."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"


@pytest.fixture
def fast_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the pauses between attempts."""
    from shaperouter import _retries

    monkeypatch.setattr(_retries, "_FIRST_PAUSE", 0.01)

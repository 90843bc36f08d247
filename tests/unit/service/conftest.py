"""What several tests of the service need: a small tokenizer, and a router over fake workers."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status
from prometheus_client import CollectorRegistry
from tokenizers import decoders, pre_tokenizers, trainers

from shaperouter.v1 import (
    generation_pb2,
    generation_pb2_grpc,
    graph_pb2,
    graph_pb2_grpc,
    model_pb2,
    model_pb2_grpc,
    signature_pb2,
    worker_pb2,
    worker_pb2_grpc,
)
from shaperouter_service.errors import UnknownModelError
from shaperouter_service.roles import router as router_role
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.rpc.server import listen, make_server
from shaperouter_service.sources import ModelSource
from shaperouter_service.text import Tokenizer, load_tokenizer

PATIENCE = 10.0  # seconds; longest wait for a condition
END = "<|endoftext|>"

# Enough for some merges, few enough that most characters beyond ASCII take several tokens.
SENTENCES = [
    "TensorFlow is a library for numbers that flow through graphs.",
    "The naïve café serves crème brûlée to Zoë.",
    "東京は日本の首都です。 東京は大きい。",
    "A family of emoji: 👩‍👩‍👧‍👦 😀 😀 🎉.",
]
VOCAB_SIZE = 320
MAX_LENGTH, SLOTS = 64, 4

Step = worker_pb2.RunResponse | Exception | Callable[[], Awaitable[object]]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a small byte-level BPE tokenizer, as checkpoints have it."""
    from transformers import PreTrainedTokenizerFast

    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(SENTENCES, trainer)
    directory = tmp_path_factory.mktemp("checkpoint")
    PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=END).save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def tokenizer(checkpoint: Path) -> Tokenizer:
    """The tokenizer of `checkpoint`, as the service loads it."""
    loaded = load_tokenizer(checkpoint)
    assert loaded is not None
    return loaded


@pytest.fixture(scope="session")
def encode(checkpoint: Path) -> Callable[[str], Sequence[int]]:
    """Encodes with the same tokenizer by other means than the service's."""
    bpe = tokenizers.Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    return lambda text: bpe.encode(text).ids


class FakeWorker(worker_pb2_grpc.WorkerServiceServicer):
    """A worker that plays `script` for every run, behind a socket that can be cut.

    A step of the script is an event to send, an error to raise, or a function to await. What the
    real worker promises is kept: its state at once and after each change, a completion after which
    nothing follows, errors as statuses, and runs that end when they are cancelled.
    """

    def __init__(self, name: str, address: Path, models: Sequence[str]) -> None:
        self.name = name
        self.address = f"unix:{address}"
        self.incarnation = 0
        self.script: list[Step] = [self.tokens(5), self.tokens(7, 8), self.completion()]
        self.requests: list[worker_pb2.RunRequest] = []
        self.seconds_left: list[float | None] = []  # until each run's deadline
        self.running = 0
        self.cancelled = 0  # runs that ended before their script
        self.released = asyncio.Event()  # lets runs that hold go on
        self.models = [self._model(name) for name in models]
        self.graphs: list[graph_pb2.Graph] = []
        self._changed = asyncio.Condition()
        self._path = address
        self._server: aio.Server | None = None
        self._stack = contextlib.AsyncExitStack()

    # The script.

    @staticmethod
    def tokens(*token_ids: int) -> worker_pb2.RunResponse:
        """New tokens."""
        return worker_pb2.RunResponse(tokens=worker_pb2.RunTokens(token_ids=token_ids))

    @staticmethod
    def stall(length: int = 16) -> worker_pb2.RunResponse:
        """The beginning of a wait for a prefill graph."""
        return worker_pb2.RunResponse(
            stall=generation_pb2.Stall(signature=FakeWorker.signature(length))
        )

    @staticmethod
    def completion(
        reason: generation_pb2.FinishReason = generation_pb2.FINISH_REASON_LENGTH,
    ) -> worker_pb2.RunResponse:
        """The end."""
        prefill = FakeWorker.signature(16)
        return worker_pb2.RunResponse(
            completion=worker_pb2.RunCompletion(
                finish_reason=reason,
                padded_prompt_tokens=16,
                queue_seconds=0.125,
                stall_seconds=2.5,
                prefill_seconds=0.25,
                decode_seconds=0.5,
                graphs=[
                    generation_pb2.GraphUse(
                        asked=prefill, served=prefill, calls=1, device_seconds=0.0625
                    )
                ],
            )
        )

    async def hold(self) -> None:
        """A step that lasts until the test sets `released`."""
        await self.released.wait()

    @staticmethod
    def signature(
        length: int, kind: signature_pb2.GraphKind = signature_pb2.GRAPH_KIND_PREFILL
    ) -> signature_pb2.Signature:
        """A signature of one row."""
        return signature_pb2.Signature(model="tiny", kind=kind, rows=1, length=length, beams=1)

    def graph(self, signature: signature_pb2.Signature) -> graph_pb2.Graph:
        """A ready graph on this worker."""
        return graph_pb2.Graph(
            signature=signature,
            worker=self.name,
            state=graph_pb2.GRAPH_STATE_READY,
            traces=1,
            compiles=1,
            compile_seconds=graph_pb2.Histogram(bounds=[1], counts=[0, 1], sum=2.5),
            stall_seconds=graph_pb2.Histogram(bounds=[1], counts=[1, 0], sum=0.5),
            device_seconds=graph_pb2.Histogram(bounds=[1], counts=[3, 0], sum=0.25),
        )

    # Its life.

    async def start(self) -> None:
        """Begins to serve, as a new process would."""
        self.incarnation += 1
        inner = self._path.with_suffix(f".{self.incarnation}")
        server = self._server = make_server(
            [worker_pb2.DESCRIPTOR.services_by_name["WorkerService"]]
        )
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(self, server)
        listen(server, f"unix:{inner}")
        await server.start()
        self._stack.push_async_callback(server.stop, None)
        await self._stack.enter_async_context(_cuttable(self._path, inner))

    async def kill(self) -> None:
        """Cuts every connection without a word, as SIGKILL does."""
        await self._stack.aclose()

    async def stop(self) -> None:
        """Ends the runs there are, as SIGTERM does when the grace period is over."""
        assert self._server
        await self._server.stop(None)
        await self.kill()

    async def change(self) -> None:
        """Tells watchers that the state has changed."""
        async with self._changed:
            self._changed.notify_all()

    # The service.

    async def Watch(  # noqa: N802 (gRPC's name)
        self, request: worker_pb2.WatchRequest, context: Any
    ) -> AsyncIterator[worker_pb2.WatchResponse]:
        """Tells the state, at once and after each change."""
        async with self._changed:
            while True:
                yield worker_pb2.WatchResponse(
                    worker=self.name,
                    incarnation=str(self.incarnation),
                    device="CPU:0",
                    models=self.models,
                    graphs=self.graphs,
                    lanes=[
                        worker_pb2.Lane(
                            model=model.name, beams=1, active_slots=self.running, total_slots=SLOTS
                        )
                        for model in self.models
                    ],
                )
                await self._changed.wait()

    async def Run(  # noqa: N802 (gRPC's name)
        self, request: worker_pb2.RunRequest, context: Any
    ) -> AsyncIterator[worker_pb2.RunResponse]:
        """Plays the script."""
        self.requests.append(request)
        self.seconds_left.append(context.time_remaining())
        if request.model not in [model.name for model in self.models]:
            raise UnknownModelError(request.model, [])
        self.running += 1
        ended = False
        try:
            for step in list(self.script):
                if isinstance(step, Exception):
                    ended = True
                    raise step
                if isinstance(step, worker_pb2.RunResponse):
                    yield step
                else:
                    await step()
            ended = True
        finally:
            self.running -= 1
            self.cancelled += not ended

    @staticmethod
    def _model(name: str) -> model_pb2.Model:
        ladders = Ladders.default(max_length=MAX_LENGTH, slots=SLOTS)
        return model_pb2.Model(
            name=name,
            family="gpt2",
            vocab_size=VOCAB_SIZE,
            max_length=MAX_LENGTH,
            eos_token_ids=[0],
            default_temperature=1.0,
            dtype="float32",
            slots=SLOTS,
            ladders=model_pb2.Ladders(
                prefill_lengths=ladders.prefill_lengths.rungs,
                decode_lengths=ladders.decode_lengths.rungs,
                decode_rows=ladders.decode_rows.rungs,
                beams=ladders.beams.rungs,
            ),
        )


@contextlib.asynccontextmanager
async def _cuttable(outer: Path, inner: Path) -> AsyncIterator[None]:
    """Forwards a Unix socket to another; at its end, all connections are aborted."""
    writers: set[asyncio.StreamWriter] = set()
    forwarding: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(inner)
        writers.update((writer, inner_writer))
        for source, target in ((reader, inner_writer), (inner_reader, writer)):
            forwarding.add(asyncio.create_task(pump(source, target)))

    server = await asyncio.start_unix_server(forward, outer)
    try:
        yield
    finally:
        server.close()
        outer.unlink()  # noqa: ASYNC240 (a moment)
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*forwarding)


class Router:
    """A running router, and stubs to call it with; `stop` tells it to stop."""

    def __init__(
        self, channel: aio.Channel, registry: CollectorRegistry, stop: asyncio.Event
    ) -> None:
        self.channel = channel
        self.stop = stop
        self.generation = generation_pb2_grpc.GenerationServiceStub(channel)
        self.models = model_pb2_grpc.ModelServiceStub(channel)
        self.graphs = graph_pb2_grpc.GraphServiceStub(channel)
        self.health = health_pb2_grpc.HealthStub(channel)
        self._registry = registry

    def generate(self, *, timeout: float | None = PATIENCE, **fields: Any) -> Any:
        """Calls Generate; the prompt is one token unless the fields say otherwise."""
        return self.generation.Generate(
            generation_pb2.GenerateRequest(**_with_prompt(fields)), timeout=timeout
        )

    def stream(self, *, timeout: float | None = PATIENCE, **fields: Any) -> Any:
        """Calls GenerateStream, likewise."""
        return self.generation.GenerateStream(
            generation_pb2.GenerateStreamRequest(**_with_prompt(fields)), timeout=timeout
        )

    async def error(self, call: Awaitable[object]) -> aio.AioRpcError:
        """The error that a unary call or the reading of a stream ends with."""
        reading = _read(call) if isinstance(call, aio.UnaryStreamCall) else call
        with pytest.raises(aio.AioRpcError) as failure:
            await reading
        return failure.value

    async def health_of(self, service: str) -> int:
        """What the health service says of a service."""
        request = health_pb2.HealthCheckRequest(service=service)
        return (await self.health.Check(request, timeout=PATIENCE)).status

    async def wait_for_health(self, service: str, status: int) -> None:
        """Waits until the health service says this of a service."""
        request = health_pb2.HealthCheckRequest(service=service)
        async with contextlib.aclosing(_values(self.health.Watch(request))) as responses:
            async for response in responses:
                if response.status == status:
                    return

    @property
    def free_slots(self) -> float:
        """Slots of the workers that the router knows of; shown once the catalog has them."""
        return sum(
            sample.value
            for family in self._registry.collect()
            for sample in family.samples
            if sample.name == "shaperouter_slots" and sample.labels["state"] == "free"
        )

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric; 0 before it is first counted."""
        return self._registry.get_sample_value(f"shaperouter_{name}", labels) or 0


def _with_prompt(fields: dict[str, Any]) -> dict[str, Any]:
    if "text" in fields or "token_ids" in fields:
        return fields
    return fields | {"token_ids": generation_pb2.TokenIds(ids=[1])}


async def _read(call: aio.UnaryStreamCall[Any, Any]) -> None:
    while await call.read() is not aio.EOF:
        pass


async def _values(call: Any) -> AsyncGenerator[Any, None]:
    try:
        async for value in call:
            yield value
    finally:
        call.cancel()


Scenario = Callable[..., Awaitable[None]]
Play = Callable[..., None]


async def wait_until(condition: Callable[[], bool]) -> None:
    """Waits for a condition that nothing tells of."""
    while not condition():  # noqa: ASYNC110 (there is no event)
        await asyncio.sleep(0.005)


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """Waits for a condition."""
    return wait_until


@pytest.fixture
def sockets() -> Iterator[Path]:
    """A directory for Unix sockets, whose names must be short."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


@pytest.fixture
def play(checkpoint: Path, sockets: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Plays a scenario: an async function of a router and its workers.

    `workers` is their number, and `models` what they and the router serve. With `started` false
    the workers don't serve before the scenario says so; with `text` false the models have no
    tokenizers; `grace` is the time, in seconds, that requests have when the router stops.
    """

    async def act(
        scenario: Scenario,
        workers: int,
        models: Sequence[str],
        *,
        started: bool,
        text: bool,
        grace: float,
    ) -> None:
        fakes = [
            FakeWorker(f"worker-{index}", sockets / f"worker-{index}", models)
            for index in range(workers)
        ]
        stop = asyncio.Event()
        registry = CollectorRegistry()
        monkeypatch.setattr(router_role, "stop_signal", lambda: stop)
        monkeypatch.setattr(router_role, "make_registry", lambda: registry)
        # Its HTTP server takes half a second to stop.
        monkeypatch.setattr(router_role, "serve_metrics", lambda *_: contextlib.nullcontext(0))
        config = router_role.RouterConfig(
            models=[
                ModelSource(name=model, directory=checkpoint if text else sockets)
                for model in models
            ],
            listen=f"unix:{sockets / 'router'}",
            metrics_listen="127.0.0.1:0",
            grace=grace,
            own_workers=True,
        )
        async with contextlib.AsyncExitStack() as stack:
            for fake in fakes:
                stack.push_async_callback(fake.kill)
                if started:
                    await fake.start()
            task = asyncio.create_task(
                router_role.run_router(config, [fake.address for fake in fakes])
            )
            try:
                async with (
                    aio.insecure_channel(config.listen, _CHANNEL_OPTIONS) as channel,
                    asyncio.timeout(PATIENCE),
                ):
                    router = Router(channel, registry, stop)
                    await channel.channel_ready()
                    if started:
                        await router.wait_for_health("readiness", _SERVING)
                        await wait_until(lambda: router.free_slots == workers * len(models) * SLOTS)
                    await scenario(router, *fakes)
            finally:
                stop.set()
                await task

    def play(
        scenario: Scenario,
        *,
        workers: int = 1,
        models: Sequence[str] = ("tiny",),
        started: bool = True,
        text: bool = True,
        grace: float = 0.0,
    ) -> None:
        asyncio.run(act(scenario, workers, models, started=started, text=text, grace=grace))

    return play


_SERVING = health_pb2.HealthCheckResponse.SERVING
# The first attempt often comes before the router listens; the default is to wait a second then.
_CHANNEL_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 10),
    ("grpc.min_reconnect_backoff_ms", 10),
]


@pytest.fixture
def detail() -> Callable[[aio.AioRpcError, type[Message]], Any]:
    """Picks a kind of detail out of the status that a call ended with."""

    def detail(error: aio.AioRpcError, kind: type[Message]) -> Any:
        status: status_pb2.Status = rpc_status.from_call(error)
        assert status is not None, f"no details: {error}"
        for packed in status.details:
            message = kind()
            if packed.Unpack(message):
                return message
        raise AssertionError(f"no {kind.DESCRIPTOR.name} in {status}")

    return detail


@pytest.fixture
def retry_seconds(
    detail: Callable[[aio.AioRpcError, type[Message]], Any],
) -> Callable[[aio.AioRpcError], float]:
    """Tells after how many seconds an error says to try again."""

    def retry_seconds(error: aio.AioRpcError) -> float:
        info = detail(error, error_details_pb2.RetryInfo)
        return float(info.retry_delay.ToTimedelta().total_seconds())

    return retry_seconds

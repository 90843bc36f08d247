"""Fixtures shared by tests of the service: a small tokenizer, and a router with fake workers."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
import pytest
import tokenizers
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc import aio
from grpc_health.v1 import health_pb2
from grpc_status import rpc_status
from prometheus_client import CollectorRegistry
from tokenizers import decoders, pre_tokenizers, trainers

from harness.fake_model import SLOTS, VOCAB_SIZE
from harness.fake_worker import FakeWorker
from harness.ports import unused_ports
from harness.router import Play, Router, Scenario, wait_until
from harness.waiting import TIMEOUT
from shaperouter.v1 import model_pb2
from shaperouter_service.checkpoints.model_locations import ModelLocation
from shaperouter_service.fleet import deadlines as fleet_deadlines
from shaperouter_service.roles import router as router_role
from shaperouter_service.roles.router_config import RouterConfig
from shaperouter_service.rpc import deadlines as rpc_deadlines
from shaperouter_service.rpc.tls import ServerTls
from shaperouter_service.text import Tokenizer, load_tokenizer

END = "<|endoftext|>"

# Enough for some merges, few enough that most characters beyond ASCII take several tokens.
SENTENCES = [
    "TensorFlow is a library for numbers that flow through graphs.",
    "The naïve café serves crème brûlée to Zoë.",
    "東京は日本の首都です。 東京は大きい。",
    "A family of emoji: 👩‍👩‍👧‍👦 😀 😀 🎉.",
]


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
def free_address() -> str:
    """An address in TCP that nobody listens at."""
    (port,) = unused_ports(1)
    return f"127.0.0.1:{port}"


@pytest.fixture
def wide_margins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends requests seconds before their deadline, so that a starved caller gets the reason."""
    for module in (rpc_deadlines, fleet_deadlines):
        monkeypatch.setattr(module, "MARGIN", 2.0)
    monkeypatch.setattr(rpc_deadlines, "MAX_SHARE", 2 / 3)


@pytest.fixture
def play(checkpoint: Path, sockets: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Plays a scenario: an async function of a router and its workers.

    `workers` is their number, and `models` what they and the router serve; `called` are models that
    answer once, which they serve, too. With `started` false
    the workers don't serve before the scenario says so; with `text` false the models have no
    tokenizers; `grace` is the time, in seconds, that requests have when the router stops. `listen`
    is the router's address, a Unix socket unless it is given, `settings` are more of its
    configuration, `credentials` what the scenario's stubs call it with, `workers_tls` is the
    workers', and `patience` the longest that it all may take, in seconds.
    """

    async def act(
        scenario: Scenario,
        workers: int,
        models: Sequence[str],
        *,
        called: Sequence[model_pb2.Model],
        started: bool,
        text: bool,
        grace: float,
        listen: str | None,
        settings: Mapping[str, Any],
        credentials: grpc.ChannelCredentials | None,
        workers_tls: ServerTls | None,
        patience: float,
    ) -> None:
        fakes = [
            FakeWorker(f"worker-{index}", sockets / f"worker-{index}", models, tls=workers_tls)
            for index in range(workers)
        ]
        for fake in fakes:
            fake.models += called
        stop = asyncio.Event()
        registry = CollectorRegistry()
        monkeypatch.setattr(router_role, "stop_signal", lambda: stop)
        monkeypatch.setattr(router_role, "make_registry", lambda _: registry)
        # Its HTTP server takes half a second to stop.
        monkeypatch.setattr(router_role, "serve_metrics", lambda *_: contextlib.nullcontext(0))
        defaults = {
            "max_queue_seconds": 30.0,
            "max_calls": 4096,
            "max_recording_memory": 10**9,
            "max_tensor_memory": 10**9,
        }
        config = RouterConfig(
            models=[
                ModelLocation(name=model, directory=checkpoint if text else sockets)
                for model in (*models, *(model.name for model in called))
            ],
            listen=listen or f"unix:{sockets / 'router'}",
            metrics_listen="127.0.0.1:0",
            grace=grace,
            own_workers=True,
            **(defaults | dict(settings)),
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
                    (
                        aio.secure_channel(config.listen, credentials, _CHANNEL_OPTIONS)
                        if credentials
                        else aio.insecure_channel(config.listen, _CHANNEL_OPTIONS)
                    ) as channel,
                    asyncio.timeout(patience),
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
        called: Sequence[model_pb2.Model] = (),
        started: bool = True,
        text: bool = True,
        grace: float = 0.0,
        listen: str | None = None,
        settings: Mapping[str, Any] = MappingProxyType({}),
        credentials: grpc.ChannelCredentials | None = None,
        workers_tls: ServerTls | None = None,
        patience: float = TIMEOUT,
    ) -> None:
        asyncio.run(
            act(
                scenario,
                workers,
                models,
                called=called,
                started=started,
                text=text,
                grace=grace,
                listen=listen,
                settings=settings,
                credentials=credentials,
                workers_tls=workers_tls,
                patience=patience,
            )
        )

    return play


@pytest.fixture
def http(play: Play, sockets: Path) -> Callable[..., None]:
    """Plays a scenario of an HTTP client and what `play` has."""
    import httpx2 as httpx

    path = sockets / "http"

    def run(scenario: Scenario, **settings: Any) -> None:
        async def with_client(router: Router, *workers: FakeWorker) -> None:
            transport = httpx.AsyncHTTPTransport(uds=str(path))
            async with httpx.AsyncClient(
                transport=transport, base_url="http://router", timeout=TIMEOUT
            ) as client:
                await scenario(client, router, *workers)

        given = settings.pop("settings", {}) | {"http_listen": f"unix:{path}"}
        play(with_client, settings=given, **settings)

    return run


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

"""Tokens: which clients may call, their limits, and their secrecy."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
from google.rpc import error_details_pb2
from grpc import aio
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from harness.fake_worker import FakeWorker
from harness.router import Play, Router, read_events, wait_until
from harness.waiting import TIMEOUT
from shaperouter import AsyncClient, OverloadedError, UnauthenticatedError
from shaperouter.v1 import generation_pb2, graph_pb2, model_pb2
from shaperouter_service.auth import Clients, quotas, token_digest
from shaperouter_service.errors import StartupError

TOKEN, OTHER_TOKEN = "a-token-of-search", "a-token-of-chat"


def entry(name: str, token: str, **limits: int) -> str:
    lines = [f"[clients.{name}]", f'sha256 = ["{token_digest(token)}"]']
    return "\n".join([*lines, *(f"{limit} = {value}" for limit, value in limits.items())]) + "\n"


def replace(file: Path, text: str) -> None:
    """Replaces a file atomically."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def replace_by_pipe(file: Path) -> None:
    """Replaces a file by a pipe without a writer, which blocks readers forever."""
    file.unlink()
    os.mkfifo(file)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens.toml"
    file.write_text(entry("search", TOKEN) + entry("chat", OTHER_TOKEN))
    return file


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


def generate(router: Router, token: str | None, **fields: Any) -> Any:
    request = generation_pb2.GenerateRequest(
        token_ids=generation_pb2.TokenIds(ids=[1, 2, 3]), **fields
    )
    metadata = () if token is None else bearer(token)
    return router.generation.Generate(request, metadata=metadata, timeout=TIMEOUT)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ((), "MISSING_TOKEN"),
        ((("authorization", "Basic abc"),), "MISSING_TOKEN"),
        (bearer("a-wrong-token"), "UNKNOWN_TOKEN"),
        (bearer(""), "UNKNOWN_TOKEN"),
        (bearer(token_digest(TOKEN)), "UNKNOWN_TOKEN"),
    ],
)
def test_a_call_without_a_known_token_is_refused_and_counted(
    play: Play,
    tokens: Path,
    detail: Callable[..., Any],
    metadata: tuple[tuple[str, str], ...],
    reason: str,
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        calls = [
            router.generation.Generate(generation_pb2.GenerateRequest(), metadata=metadata),
            router.generation.GenerateStream(
                generation_pb2.GenerateStreamRequest(), metadata=metadata
            ),
            router.models.ListModels(model_pb2.ListModelsRequest(), metadata=metadata),
        ]
        for call in calls:
            error = await router.error(call)
            assert error.code() is grpc.StatusCode.UNAUTHENTICATED
            assert "a call needs 'authorization: Bearer TOKEN' as metadata" in error.details()
            assert detail(error, error_details_pb2.ErrorInfo).reason == reason
        assert not worker.requests
        kind = reason.partition("_")[0].lower()
        assert router.metric("authentication_failures_total", reason=kind) == len(calls)

    play(scenario, settings={"tokens": tokens})


def test_a_refused_call_is_not_parsed(play: Play, tokens: Path) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        generate = router.channel.unary_unary("/shaperouter.v1.GenerationService/Generate")
        error = await router.error(generate(b"\xff no message", timeout=TIMEOUT))
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED

    play(scenario, settings={"tokens": tokens})


def test_reflection_needs_a_token_and_health_does_not(play: Play, tokens: Path) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        assert await router.health_of("readiness")
        stub = reflection_pb2_grpc.ServerReflectionStub(router.channel)
        # It sends no request: if sending fails, gRPC's client replaces the status that it has got.
        refused = stub.ServerReflectionInfo(timeout=TIMEOUT)
        assert await refused.code() is grpc.StatusCode.UNAUTHENTICATED
        requests = [reflection_pb2.ServerReflectionRequest(list_services="")]
        let_in = stub.ServerReflectionInfo(iter(requests), metadata=bearer(TOKEN), timeout=TIMEOUT)
        assert (await let_in.read()).list_services_response.service

    play(scenario, settings={"tokens": tokens})


def test_the_token_overrides_the_client_id_of_a_call(play: Play, tokens: Path) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        request = generation_pb2.GenerateRequest(token_ids=generation_pb2.TokenIds(ids=[1, 2, 3]))
        metadata = (("x-client-id", "chat"), *bearer(TOKEN))
        with structlog.testing.capture_logs() as logs:
            await router.generation.Generate(request, metadata=metadata, timeout=TIMEOUT)
        assert [run.client for run in worker.requests] == ["search"]
        assert [line["client"] for line in logs if line["event"] == "request"] == ["search"]
        assert router.metric("client_requests_total", client="search", code="OK") == 1
        assert router.metric("client_tokens_total", client="search", kind="prompt") == 3
        assert router.metric("client_tokens_total", client="search", kind="generation") == 3

    play(scenario, settings={"tokens": tokens})


@pytest.mark.parametrize("operator", [False, True])
def test_only_operators_may_warm_graphs(
    play: Play, tokens: Path, detail: Callable[..., Any], operator: bool
) -> None:
    replace(tokens, entry("search", TOKEN) + f"operator = {str(operator).lower()}")

    async def scenario(router: Router, worker: FakeWorker) -> None:
        request = graph_pb2.WarmGraphsRequest(signatures=[worker.signature(16)])
        call = router.graphs.WarmGraphs(request, metadata=bearer(TOKEN), timeout=TIMEOUT)
        if operator:
            assert (await call.read()).graphs
            return
        error = await router.error(call)
        assert error.code() is grpc.StatusCode.PERMISSION_DENIED
        assert detail(error, error_details_pb2.ErrorInfo).reason == "NOT_OPERATOR"
        assert router.metric("authentication_failures_total", reason="not_operator") == 1
        assert not worker.wanted

    play(scenario, settings={"tokens": tokens})


def test_only_operators_may_change_models(play: Play, tokens: Path) -> None:
    replace(tokens, entry("search", TOKEN) + entry("admin", OTHER_TOKEN) + "operator = true")
    target = model_pb2.Target(model="tiny", share=1.0)

    async def scenario(router: Router, _: FakeWorker) -> None:
        for call, request in (
            (router.models.LoadModel, model_pb2.LoadModelRequest(name="tiny")),
            (router.models.UnloadModel, model_pb2.UnloadModelRequest(name="nobody")),
            (router.models.SetAlias, model_pb2.SetAliasRequest(name="chat", targets=[target])),
        ):
            for metadata, code in (
                (None, grpc.StatusCode.UNAUTHENTICATED),
                (bearer(TOKEN), grpc.StatusCode.PERMISSION_DENIED),
            ):
                error = await router.error(call(request, metadata=metadata, timeout=TIMEOUT))
                assert error.code() is code
        # The operator is let through: only the lack of a repository stops him.
        request = model_pb2.LoadModelRequest(name="tiny")
        call = router.models.LoadModel(request, metadata=bearer(OTHER_TOKEN), timeout=TIMEOUT)
        assert (await router.error(call)).code() is grpc.StatusCode.FAILED_PRECONDITION
        request = model_pb2.SetAliasRequest(name="chat", targets=[target])
        await router.models.SetAlias(request, metadata=bearer(OTHER_TOKEN), timeout=TIMEOUT)

    play(scenario, settings={"tokens": tokens})


def test_requests_over_the_limit_of_a_client_are_refused(
    play: Play,
    tokens: Path,
    detail: Callable[..., Any],
    retry_seconds: Callable[[aio.AioRpcError], float],
) -> None:
    replace(tokens, entry("search", TOKEN, max_requests=1) + entry("chat", OTHER_TOKEN))

    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script.insert(0, worker.hold)
        first = asyncio.ensure_future(generate(router, TOKEN))
        await wait_until(lambda: worker.running == 1)
        error = await router.error(generate(router, TOKEN))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error.details() == "client search is at its limit of 1 requests in flight"
        assert detail(error, error_details_pb2.ErrorInfo).reason == "CLIENT_LIMIT"
        assert retry_seconds(error) > 0
        assert router.metric("client_limited_total", client="search", limit="requests") == 1
        other = asyncio.ensure_future(generate(router, OTHER_TOKEN))
        await wait_until(lambda: worker.running == 2)
        worker.released.set()
        await asyncio.gather(first, other)
        await generate(router, TOKEN)

    play(scenario, settings={"tokens": tokens})


def test_a_cancelled_request_no_longer_counts(play: Play, tokens: Path) -> None:
    replace(tokens, entry("search", TOKEN, max_requests=1))

    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script.insert(0, worker.hold)
        request = generation_pb2.GenerateStreamRequest(token_ids=generation_pb2.TokenIds(ids=[1]))
        stream = router.generation.GenerateStream(request, metadata=bearer(TOKEN))
        await wait_until(lambda: worker.running == 1)
        stream.cancel()
        await wait_until(lambda: worker.cancelled == 1)
        worker.released.set()
        again = router.generation.GenerateStream(request, metadata=bearer(TOKEN), timeout=TIMEOUT)
        await read_events(again)

    play(scenario, settings={"tokens": tokens})


class Clock:
    """Stands still until a test moves it on."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of quotas."""
    clock = Clock()
    monkeypatch.setattr(quotas, "time", clock)
    return clock


def test_a_client_over_its_token_limit_waits_until_it_refills(
    play: Play,
    tokens: Path,
    clock: Clock,
    retry_seconds: Callable[[aio.AioRpcError], float],
) -> None:
    replace(tokens, entry("search", TOKEN, tokens_per_minute=6))

    async def scenario(router: Router, _: FakeWorker) -> None:
        # Three of the prompt and three made: the first takes all of a minute.
        await generate(router, TOKEN)
        error = await router.error(generate(router, TOKEN))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error.details() == "client search is at its limit of 6 tokens a minute"
        wait = retry_seconds(error)
        assert wait == 10.0
        clock.now += wait
        # One token is left: what it takes beyond is a debt.
        await generate(router, TOKEN)
        assert retry_seconds(await router.error(generate(router, TOKEN))) > 50
        assert router.metric("client_limited_total", client="search", limit="tokens") == 2

    play(scenario, settings={"tokens": tokens})


def test_time_before_tokens_are_used_does_not_refill_them(clock: Clock) -> None:
    bucket = quotas.TokenBucket()
    assert bucket.seconds_until_token(60) == 0
    # A request that waits for an hour, and then uses the tokens of an hour.
    clock.now += 3600
    bucket.use(3600, per_minute=60)
    assert bucket.seconds_until_token(60) == 3541


def test_counts_of_refusals_start_at_zero(play: Play, tokens: Path) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        for limit in ("requests", "tokens"):
            labels = {"client": "search", "limit": limit}
            name = "shaperouter_client_limited_total"
            assert router.registry.get_sample_value(name, labels) == 0

    play(scenario, settings={"tokens": tokens})


def test_a_changed_file_applies_from_the_next_call(play: Play, tokens: Path) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        await generate(router, TOKEN)
        replace(tokens, entry("search", "the-new-token"))
        assert (await router.error(generate(router, TOKEN))).code() is (
            grpc.StatusCode.UNAUTHENTICATED
        )
        await generate(router, "the-new-token")

    play(scenario, settings={"tokens": tokens})


def test_an_invalid_changed_file_is_ignored_and_logged_once(play: Play, tokens: Path) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        replace(tokens, "[clients.search]\nsha256 = ['the-token-itself']")
        with structlog.testing.capture_logs() as logs:
            await generate(router, TOKEN)
            await generate(router, TOKEN)
        (told,) = [line for line in logs if line["event"] == "changed files not loaded"]
        assert "clients.search: sha256 must be digests" in told["reason"]
        assert "the-token-itself" not in str(logs)

    play(scenario, settings={"tokens": tokens})


def test_a_pipe_in_place_of_the_file_does_not_block(play: Play, tokens: Path) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        replace_by_pipe(tokens)
        with structlog.testing.capture_logs() as logs:
            await generate(router, TOKEN)
        (told,) = [line for line in logs if line["event"] == "changed files not loaded"]
        assert "Not a regular file" in told["reason"]

    play(scenario, settings={"tokens": tokens})


def test_no_log_line_and_no_metric_has_a_token(play: Play, tokens: Path) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        with structlog.testing.capture_logs() as logs:
            await generate(router, TOKEN)
            await router.error(generate(router, "a-wrong-token"))
            worker.script = [ValueError("a defect")]
            await router.error(generate(router, TOKEN))
        assert TOKEN not in str(logs)
        assert "a-wrong-token" not in str(logs)
        assert token_digest(TOKEN) not in str(logs)

    play(scenario, settings={"tokens": tokens})


def test_tokens_without_tls_cause_a_warning(play: Play, tokens: Path) -> None:
    async def scenario(*_: Any) -> None:
        return

    with structlog.testing.capture_logs() as logs:
        play(scenario, settings={"tokens": tokens})
    assert [line for line in logs if line["event"].startswith("tokens travel in plain text")]


def test_the_client_library_sends_its_token_and_raises_refusals(
    play: Play, tokens: Path, free_address: str
) -> None:
    replace(tokens, entry("search", TOKEN, max_requests=1))

    async def scenario(router: Router, worker: FakeWorker) -> None:
        async with AsyncClient(free_address, token=TOKEN) as client:
            assert (await client.generate("a")).token_ids == (5, 7, 8)
            worker.script.insert(0, worker.hold)
            running = asyncio.create_task(client.generate("a"))
            await wait_until(lambda: worker.running == 1)
            with pytest.raises(OverloadedError, match="limit of 1 requests") as limited:
                await client.generate("a")
            assert limited.value.retry_after is not None
            worker.released.set()
            await running
            assert TOKEN not in repr(client)
        async with AsyncClient(free_address, token="a-wrong-token") as client:
            with pytest.raises(UnauthenticatedError, match="the token is not known") as refused:
                await client.generate("a")
            assert "a-wrong-token" not in str(refused.value)

    play(scenario, listen=free_address, settings={"tokens": tokens})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[clients", "is not valid TOML"),
        ("a = " + 5000 * "[", "is not valid TOML: brackets are nested too deep"),
        ("clients = 1", r"must have only tables \[clients.NAME\]"),
        ("[users.a]", r"must have only tables \[clients.NAME\]"),
        ("[clients.a]", "clients.a: sha256 must be a list of digests"),
        ("[clients.a]\nsha256 = []", "clients.a: sha256 must be a list of digests"),
        ("[clients.a]\nsha256 = ['hunter2']", "sha256 must be digests of 64 hexadecimal digits"),
        ("[clients.a]\ntoken = 'hunter2'", "unknown keys token; known are sha256, .* and operator"),
        ("[clients.'a b']\nsha256 = ['x']", "at most 64 letters"),
        (entry("a", "t") + entry("b", "t"), "clients.b: sha256 must differ from that of a"),
        (entry("a", "t") + "operator = 1", "operator must be true or false, got 1"),
        (entry("a", "t", max_requests=0), "max_requests must be an integer from 1 to .*, got 0"),
        (entry("a", "t", tokens_per_minute=-1), "tokens_per_minute must be .*, got -1"),
    ],
)
def test_errors_of_the_file_do_not_quote_secrets(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(text)
    with pytest.raises(StartupError, match=message) as error:
        Clients(file)
    assert "hunter2" not in str(error.value)


def test_a_client_may_have_two_tokens(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(f'[clients.a]\nsha256 = ["{token_digest("old")}", "{token_digest("new")}"]')
    clients = Clients(file)
    assert [clients.by_token(token) is not None for token in ("old", "new", "other")] == [
        True,
        True,
        False,
    ]

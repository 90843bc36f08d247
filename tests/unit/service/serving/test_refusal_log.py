"""Refused calls: each has an id, which its error and its log line contain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc import StatusCode, aio
from prometheus_client import CollectorRegistry

from harness.logs import capture_logs
from harness.router import wait_until
from harness.waiting import TIMEOUT
from shaperouter.v1 import generation_pb2, graph_pb2, model_pb2
from shaperouter_service.auth import token_digest
from shaperouter_service.errors import Code
from shaperouter_service.serving import refusal_log
from shaperouter_service.serving.models import Models
from shaperouter_service.serving.refusal_log import RefusalLog
from shaperouter_service.telemetry.refusals import RefusalMetrics

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Detail = Callable[[aio.AioRpcError, type[Message]], Any]

TOKEN = "a-token-of-search"
BEARER = (("authorization", f"Bearer {TOKEN}"),)
REQUEST = generation_pb2.GenerateRequest(token_ids=generation_pb2.TokenIds(ids=[1]))


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens.toml"
    file.write_text(f'[clients.search]\nsha256 = ["{token_digest(TOKEN)}"]\nmax_requests = 1\n')
    return file


def lines(logs: list[Any]) -> list[Any]:
    return [line for line in logs if line["event"] in ("request", "call refused")]


def check(line: Any, error: aio.AioRpcError, detail: Detail) -> None:
    """The error and the log line are about the same call."""
    (trailer,) = (value for key, value in error.trailing_metadata() or () if key == "x-request-id")
    assert line["request_id"] == trailer
    assert detail(error, error_details_pb2.RequestInfo).request_id == trailer
    assert line["code"] == error.code().name


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [((), "MISSING_TOKEN"), ((("authorization", "Bearer wrong"),), "UNKNOWN_TOKEN")],
)
def test_a_call_with_an_unknown_token_is_logged(
    play: Play, tokens: Path, detail: Detail, metadata: tuple[tuple[str, str], ...], reason: str
) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        request = model_pb2.ListModelsRequest()
        with capture_logs() as logs:
            error = await router.error(router.models.ListModels(request, metadata=metadata))
        (line,) = lines(logs)
        check(line, error, detail)
        assert line["event"] == "call refused"
        assert line["method"] == "shaperouter.v1.ModelService/ListModels"
        assert line["reason"] == reason
        assert "wrong" not in str(line)
        assert line["peer"].startswith("unix:")
        assert router.metric("refused_calls_total", reason=reason) == 1

    play(scenario, settings={"tokens": tokens})


def test_a_call_over_a_clients_limit_is_logged_with_the_client(
    play: Play, tokens: Path, detail: Detail
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script.insert(0, worker.hold)
        held = asyncio.ensure_future(router.generation.Generate(REQUEST, metadata=BEARER))
        await wait_until(lambda: worker.running == 1)
        with capture_logs() as logs:
            error = await router.error(router.generation.Generate(REQUEST, metadata=BEARER))
        (line,) = lines(logs)
        check(line, error, detail)
        assert (line["client"], line["reason"]) == ("search", "CLIENT_LIMIT")
        assert line["log_level"] == "warning"
        worker.released.set()
        await held

    play(scenario, settings={"tokens": tokens})


def test_a_call_only_for_operators_is_logged_with_the_client(
    play: Play, tokens: Path, detail: Detail
) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        call = router.graphs.WarmGraphs(graph_pb2.WarmGraphsRequest(), metadata=BEARER)
        with capture_logs() as logs:
            error = await router.error(call)
        (line,) = lines(logs)
        check(line, error, detail)
        assert (line["client"], line["reason"]) == ("search", "NOT_OPERATOR")

    play(scenario, settings={"tokens": tokens})


def test_an_invalid_request_has_one_line(play: Play, detail: Detail) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        options = generation_pb2.GenerationOptions(temperature=-1)
        for call in (router.generate, router.stream):
            with capture_logs() as logs:
                error = await router.error(call(options=options))
            (line,) = lines(logs)
            check(line, error, detail)
            assert line["event"] == "request"
            assert "options.temperature" in line["error"]
            assert line["reason"] == "INVALID_REQUEST"
            assert line["method"].startswith("shaperouter.v1.GenerationService/")
            assert line["peer"].startswith(line["client"])

    play(scenario)


def test_bytes_that_are_no_message_are_logged(play: Play, detail: Detail) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        generate: Any = router.channel.unary_unary("/shaperouter.v1.GenerationService/Generate")
        with capture_logs() as logs:
            error = await router.error(generate(b"junk", timeout=TIMEOUT))
        (line,) = lines(logs)
        check(line, error, detail)
        assert line["reason"] == "INVALID_REQUEST"

    play(scenario)


def test_every_service_logs_an_unknown_model(play: Play, detail: Detail) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        for call, request in (
            (router.generation.Generate, generation_pb2.GenerateRequest(model="another")),
            (router.models.GetModel, model_pb2.GetModelRequest(name="another")),
            (router.graphs.WatchGraphs, graph_pb2.WatchGraphsRequest(model="another")),
        ):
            with capture_logs() as logs:
                error = await router.error(call(request))
            (line,) = lines(logs)
            check(line, error, detail)
            assert error.code() is StatusCode.NOT_FOUND

    play(scenario)


def test_a_defect_is_logged_with_the_calls_id(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    def describe(*_: Any) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(Models, "_describe", describe)

    async def scenario(router: Router, _: FakeWorker) -> None:
        with capture_logs() as logs:
            error = await router.error(router.models.ListModels(model_pb2.ListModelsRequest()))
        trailer: dict[str, Any] = dict(error.trailing_metadata() or ())
        (defect,) = (line for line in logs if line["event"] == "unexpected exception")
        assert error.code() is StatusCode.INTERNAL
        assert defect["request_id"] == trailer["x-request-id"]

    play(scenario)


@pytest.mark.parametrize("kind", ["request", "call refused"])
def test_a_flood_of_refused_calls_logs_few_lines_and_a_count(
    play: Play, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    calls, burst = 30, 5
    monkeypatch.setattr(refusal_log, "BURST", burst)
    monkeypatch.setattr(refusal_log, "LINES_PER_SECOND", 0.0)
    monkeypatch.setattr(refusal_log, "SUMMARY_INTERVAL", 0.01)

    async def scenario(router: Router, _: FakeWorker) -> None:
        def call() -> Any:
            if kind == "request":
                return router.generate(model="another")
            return router.models.GetModel(model_pb2.GetModelRequest(name="another"))

        with capture_logs() as logs:
            for _ in range(calls):
                await router.error(call())
            summaries: list[Any] = []

            def all_logged() -> bool:
                summaries[:] = [line for line in logs if line["event"].endswith("not logged")]
                return sum(line["count"] for line in summaries) == calls - burst

            await wait_until(all_logged)
        assert [line["event"] for line in lines(logs)] == [kind] * burst
        assert set(summaries[0]["by_code"]) == {"NOT_FOUND"}
        assert router.metric("refused_calls_total", reason="UNKNOWN_MODEL") == calls

    play(scenario)


def test_the_count_of_a_flood_is_logged_when_the_router_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refusal_log, "BURST", 1)

    async def flood() -> None:
        log = RefusalLog(RefusalMetrics(CollectorRegistry()))
        for _ in range(3):
            log.write(Code.NOT_FOUND, "request", {})
        log.summarize()
        log.summarize()

    with capture_logs() as logs:
        asyncio.run(flood())
    assert [line["event"] for line in logs] == ["request", "refused calls not logged"]
    assert logs[1]["count"] == 2

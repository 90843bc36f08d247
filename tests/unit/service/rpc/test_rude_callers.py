"""Misbehaving callers cause no errors in the service's log."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.raw_http2 import deaf_connection
from harness.router import wait_until
from shaperouter.v1 import generation_pb2
from shaperouter_service.rpc import server as server_module

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

GENERATE = "/shaperouter.v1.GenerationService/Generate"
REQUEST = generation_pb2.GenerateRequest(
    token_ids=generation_pb2.TokenIds(ids=[1])
).SerializeToString()


def complaints(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Warnings and errors, without gRPC's reports that an earlier test's event loop is closed."""

    def is_late(record: logging.LogRecord) -> bool:
        error = record.exc_info and record.exc_info[1]
        return isinstance(error, RuntimeError) and str(error) == "Event loop is closed"

    logged = [record for record in caplog.records if record.levelno >= logging.WARNING]
    return [record for record in logged if not is_late(record)]


def test_a_connection_that_breaks_during_a_response_logs_no_error(
    play: Play, sockets: Path, caplog: pytest.LogCaptureFixture
) -> None:
    method = {"grpc_service": "shaperouter.v1.GraphService", "grpc_method": "WatchGraphs"}
    labels = {"grpc_type": "server_stream", **method}

    async def scenario(router: Router, worker: FakeWorker) -> None:
        def count(name: str, **more: str) -> float | None:
            return router.registry.get_sample_value(f"grpc_server_{name}_total", labels | more)

        async with deaf_connection(f"unix:{sockets / 'router'}") as deaf:
            deaf.call("/shaperouter.v1.GraphService/WatchGraphs")
            await wait_until(lambda: count("started") == 1)
        await wait_until(lambda: count("handled", grpc_code="CANCELLED") == 1)
        assert not complaints(caplog)

    play(scenario)


def test_the_call_of_a_caller_that_answers_no_ping_is_cancelled(
    play: Play, sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "CALLER_PING_INTERVAL", 0.1)
    monkeypatch.setattr(server_module, "CALLER_PING_TIMEOUT", 5.0)

    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script.insert(0, worker.hold)
        async with deaf_connection(f"unix:{sockets / 'router'}") as deaf:
            deaf.call(GENERATE, REQUEST)
            await wait_until(lambda: worker.running == 1)
            deaf.vanished = True
            await wait_until(lambda: worker.cancelled == 1)

    play(scenario)


def test_metadata_that_is_not_utf8_is_not_logged(
    play: Play, sockets: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        async with deaf_connection(f"unix:{sockets / 'router'}") as deaf:
            deaf.call(GENERATE, REQUEST, x_client_id="a\xff")
            await wait_until(lambda: bool(worker.requests))
        assert worker.requests[0].client == "a\xff"
        assert not complaints(caplog)

    play(scenario)


@pytest.mark.parametrize("timeout", ["99999999H", "153722867M"])
def test_a_deadline_in_centuries_counts_as_none(play: Play, sockets: Path, timeout: str) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        async with deaf_connection(f"unix:{sockets / 'router'}") as deaf:
            deaf.call(GENERATE, REQUEST, grpc_timeout=timeout)
            await wait_until(lambda: bool(worker.seconds_left))
        assert worker.seconds_left == [None]

    play(scenario)

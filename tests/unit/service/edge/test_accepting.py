"""Accepting of HTTP connections while the system refuses some."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from harness.waiting import TIMEOUT
from shaperouter_service.edge.http import accepting as module
from shaperouter_service.edge.http.accepting import accepting
from shaperouter_service.telemetry.http_calls import HttpMetrics

SHORTAGE = "HTTP connections wait: one could not be accepted"
AGAIN = "HTTP connections are accepted again"


class Listener(socket.socket):
    """A listener that fails with an error as often as it is asked to."""

    failures = 0
    error = errno.EMFILE

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures:
            self.failures -= 1
            raise OSError(self.error, os.strerror(self.error))
        return super().accept()


class Greeter(asyncio.Protocol):
    """Greets a caller, and hangs up."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(b"hello")
        transport.close()


@pytest.fixture
def metrics() -> HttpMetrics:
    return HttpMetrics(CollectorRegistry())


@pytest.fixture
def connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metrics: HttpMetrics
) -> Callable[..., None]:
    """Connects once for each number of failures, which come first, and reads the greetings."""
    monkeypatch.setattr(module, "PAUSE", 0.0)
    path = str(tmp_path / "socket")

    async def connected(listener: Listener, failures: Iterable[int]) -> None:
        async with accepting(
            listener,
            Greeter,
            tls=None,
            metrics=metrics,
            max_connections=100,
            connections=lambda: 0,
        ):
            for each in failures:
                listener.failures = each
                reader, writer = await asyncio.open_unix_connection(path)
                assert await reader.read() == b"hello"
                writer.close()

    def run(failures: Iterable[int], error: int = errno.EMFILE) -> None:
        with Listener(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            listener.setblocking(False)
            listener.listen()
            listener.error = error
            scenario: Awaitable[None] = connected(listener, failures)
            asyncio.run(asyncio.wait_for(scenario, TIMEOUT))

    return run


def count(metrics: HttpMetrics) -> float:
    (family,) = metrics.accept_failures.collect()
    return next(each.value for each in family.samples if each.name.endswith("_total"))


def test_failures_are_counted_until_a_connection_is_accepted(
    connect: Callable[..., None], metrics: HttpMetrics
) -> None:
    connect([5])
    assert count(metrics) == 5


def test_a_shortage_costs_one_line_and_its_end_another(connect: Callable[..., None]) -> None:
    with capture_logs() as logs:
        connect([50])
    assert [line["event"] for line in logs] == [SHORTAGE, AGAIN]


def test_shortages_in_a_row_cost_no_further_lines(connect: Callable[..., None]) -> None:
    with capture_logs() as logs:
        connect([1, 1, 1])
    assert [line["event"] for line in logs] == [SHORTAGE, AGAIN]


def test_a_later_line_says_how_many_failures_there_were_since_the_last(
    connect: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def then_logging_each() -> Iterator[int]:
        yield 5
        monkeypatch.setattr(module, "LOG_INTERVAL", 0.0)
        yield 1

    with capture_logs() as logs:
        connect(then_logging_each())
    assert [line["failures"] for line in logs if line["event"] == SHORTAGE] == [1, 5]


@pytest.mark.parametrize(
    ("error", "limit"),
    [(errno.EMFILE, "RLIMIT_NOFILE"), (errno.ENFILE, "fs.file-max"), (errno.ENOBUFS, None)],
)
def test_the_line_names_the_limit(
    connect: Callable[..., None], error: int, limit: str | None
) -> None:
    with capture_logs() as logs:
        connect([1], error=error)
    assert logs[0].get("limit") == limit
    assert logs[0]["reason"] == os.strerror(error)


def test_a_caller_that_left_the_queue_is_no_failure(
    connect: Callable[..., None], metrics: HttpMetrics
) -> None:
    connect([3], error=errno.ECONNABORTED)
    assert count(metrics) == 0

"""The server of /metrics: silent connections cost little and do not block others."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter

from harness.waiting import TIMEOUT, wait_until
from shaperouter_service.errors import StartupError
from shaperouter_service.telemetry import metrics_server
from shaperouter_service.telemetry.metrics_server import MAX_CONNECTIONS, serve_metrics

OPEN_METRICS = {"Accept": "application/openmetrics-text; version=1.0.0", "Accept-Encoding": "gzip"}


@pytest.fixture
def port() -> Iterator[int]:
    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry)
    with serve_metrics(registry, "127.0.0.1:0") as port:
        yield port


def request(
    port: int, method: str = "GET", headers: dict[str, str] | None = None
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    with contextlib.closing(connection):
        connection.request(method, "/metrics", headers=headers or {})
        response = connection.getresponse()
        return response.status, response.headers, response.read()


@contextlib.contextmanager
def silent(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Connections that send nothing."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT))
            for _ in range(count)
        ]


def is_closed(connection: socket.socket) -> bool:
    return connection.recv(1) == b""


def test_metrics_are_served_in_the_requested_format(port: int) -> None:
    assert b"things_total 0.0" in request(port)[2]
    status, headers, body = request(port, headers=OPEN_METRICS)
    assert status == http.client.OK
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert headers["Content-Encoding"] == "gzip"
    assert body[:2] == b"\x1f\x8b"


def test_other_methods_are_refused(port: int) -> None:
    assert request(port, "POST")[0] == http.client.METHOD_NOT_ALLOWED


def test_silent_connections_do_not_block_a_scrape(port: int) -> None:
    before = threading.active_count()
    with silent(port, 10 * MAX_CONNECTIONS) as connections:
        assert b"things_total" in request(port)[2]
        assert is_closed(connections[0])
        wait_until(lambda: threading.active_count() <= before + MAX_CONNECTIONS)


def test_as_many_connections_as_allowed_stay_open(port: int) -> None:
    with silent(port, MAX_CONNECTIONS) as connections:
        for connection in connections:
            connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert connection.recv(4) == b"HTTP"


@pytest.mark.parametrize("said", [b"", b"GET /metrics HTTP/1.1\r\nHost: a", b"\r"])
def test_a_silent_connection_is_closed(
    port: int, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(metrics_server, "CONNECTION_SECONDS", 0.0)
    before = threading.active_count()
    with silent(port, 1) as (connection,):
        connection.sendall(said)
        assert is_closed(connection)
        wait_until(lambda: threading.active_count() <= before)


def test_an_address_in_use_is_a_startup_error(port: int) -> None:
    with (
        pytest.raises(StartupError, match=rf"metrics-listen: cannot listen on 127.0.0.1:{port}"),
        serve_metrics(CollectorRegistry(), f"127.0.0.1:{port}"),
    ):
        pass

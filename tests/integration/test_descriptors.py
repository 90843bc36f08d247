"""A router whose file descriptors are used up by connections, and free again."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator

import psutil
import pytest

from harness.service import LOCAL, Service
from harness.waiting import TIMEOUT

SHORTAGE = "HTTP connections wait: one could not be accepted"
# Connections beside those that the limit leaves descriptors for.
FREE, CONNECTIONS = 20, 100


@pytest.fixture
def router() -> Iterator[Service]:
    """A router without workers."""
    service = Service(
        "router",
        "--model=demo",
        "--worker=127.0.0.1:1",
        f"--listen={LOCAL}",
        f"--metrics-listen={LOCAL}",
    )
    with contextlib.closing(service):
        yield service


def limit_descriptors(router: Service) -> int:
    """Leaves a router FREE descriptors, and returns its limit."""
    process = psutil.Process(router.process.pid)
    limit = process.num_fds() + FREE
    process.rlimit(psutil.RLIMIT_NOFILE, (limit, limit))
    return limit


def models(connection: http.client.HTTPConnection) -> int:
    """Asks for the models, and returns the status."""
    connection.request("GET", "/v1/models")
    with connection.getresponse() as response:
        response.read()
        return response.status


@contextlib.contextmanager
def idle(address: tuple[str, int], count: int) -> Iterator[None]:
    """Connections that send nothing; some of them wait to be accepted."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection(address, timeout=TIMEOUT))
        yield


def test_a_router_without_free_descriptors_serves_its_connections_and_then_new_ones(
    router: Service,
) -> None:
    host, _, port = router.http_url.removeprefix("http://").rpartition(":")
    limit = limit_descriptors(router)
    with contextlib.closing(http.client.HTTPConnection(host, int(port), timeout=TIMEOUT)) as early:
        assert models(early) == http.client.OK
        with idle((host, int(port)), CONNECTIONS):
            line = router.wait_for_log(SHORTAGE)
            assert (line["limit"], line["value"]) == ("RLIMIT_NOFILE", limit)
            assert models(early) == http.client.OK
            late = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT)
            late.connect()
        with contextlib.closing(late):
            assert models(late) == http.client.OK
    assert router.metric("http_server_accept_failures_total") >= 1
    router.wait_for_log("HTTP connections are accepted again")
    assert len(router.events(SHORTAGE)) == 1
    # asyncio's own servers logged thousands.
    assert [line for line in router.log if line.get("logger") == "asyncio"] == []

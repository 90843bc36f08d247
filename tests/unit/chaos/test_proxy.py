"""The network between roles loses no data but what TCP would lose, too."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.proxy import Proxy
from harness.waiting import TIMEOUT

# Larger than what the proxy reads at once, and smaller than a socket's buffer.
ANSWER = b"answer" * 20_000


@pytest.fixture
def target(tmp_path: Path) -> Iterator[socket.socket]:
    """A socket that listens."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "target.sock"))
        listener.listen()
        yield listener


@pytest.fixture
def proxy(target: socket.socket) -> Iterator[Proxy]:
    with contextlib.closing(Proxy(Path(target.getsockname()))) as proxy:
        yield proxy


def receive_all(connection: socket.socket) -> bytes:
    pieces = iter(lambda: connection.recv(65536), b"")
    return b"".join(pieces)


def test_an_answer_arrives_whose_sender_has_closed_its_connection(
    target: socket.socket, proxy: Proxy
) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=TIMEOUT) as caller:
        server, _ = target.accept()
        with server:
            server.settimeout(TIMEOUT)
            caller.sendall(b"question")
            assert server.recv(100) == b"question"
            # Nobody will read this; it reaches the server's end after the server has closed it.
            proxy.cut()
            caller.sendall(b"more")
            server.sendall(ANSWER)
        proxy.mend()
        assert receive_all(caller) == ANSWER


def test_both_ends_see_that_a_connection_is_broken(target: socket.socket, proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=TIMEOUT) as caller:
        server, _ = target.accept()
        with server:
            server.settimeout(TIMEOUT)
            caller.sendall(b"question")
            assert server.recv(100) == b"question"
            proxy.disconnect()
            assert receive_all(server) == receive_all(caller) == b""

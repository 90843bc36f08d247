"""Sockets that the HTTP server listens on."""

from pathlib import Path

import pytest

from shaperouter_service.edge.http.server import bound
from shaperouter_service.errors import StartupError


def test_a_unix_socket_is_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "http"
    with bound(f"unix:{path}"):
        assert path.is_socket()
    assert list(tmp_path.iterdir()) == []


def test_a_socket_that_another_process_listens_on_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "http"
    with bound(f"unix:{path}") as listener:
        listener.listen()
        with pytest.raises(StartupError), bound(f"unix:{path}"):
            pass
        assert path.is_socket()

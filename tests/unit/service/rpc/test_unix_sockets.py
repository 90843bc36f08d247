"""A Unix socket belongs to one process at a time."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shaperouter_service.errors import StartupError
from shaperouter_service.rpc.unix_sockets import MAX_PATH_BYTES, claimed

CLAIM = """
import sys
from shaperouter_service.rpc.unix_sockets import claimed
with claimed(sys.argv[1]):
    print("claimed", flush=True)
    sys.stdin.read()
"""


@contextmanager
def claiming(address: str) -> Iterator["subprocess.Popen[str]"]:
    """Another process that has a socket."""
    process = subprocess.Popen(
        [sys.executable, "-c", CLAIM, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout
        assert process.stdout.readline() == "claimed\n"
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def listening(path: Path) -> Iterator[None]:
    """A program that locks nothing and listens, too busy to accept anything."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        yield


@pytest.mark.parametrize("form", ["unix:{}", "unix://{}"])
def test_a_socket_in_use_is_refused_with_the_option_and_the_address(
    sockets: Path, form: str
) -> None:
    address = form.format(sockets / "s")
    with (
        claiming(f"unix:{sockets / 's'}"),
        pytest.raises(StartupError) as refusal,
        claimed(address, option="health-listen"),
    ):
        pass
    assert str(refusal.value) == (
        f"health-listen: cannot listen on {address}: another process listens there"
    )


def test_an_unlocked_socket_in_use_is_refused(sockets: Path) -> None:
    path = sockets / "s"
    with listening(path):
        with socket.socket(socket.AF_UNIX) as waiting:
            # The second connection finds no room in the queue.
            waiting.connect(str(path))
            for _ in range(2):
                with (
                    pytest.raises(StartupError, match="another process listens there"),
                    claimed(f"unix:{path}"),
                ):
                    pass
        assert path.exists()
        assert list(sockets.iterdir()) == [path]


def test_the_socket_of_a_killed_process_is_replaced(sockets: Path) -> None:
    path = sockets / "s"
    with claiming(f"unix:{path}") as process:
        with listening(path):
            pass
        process.kill()
        process.wait()
    assert path.exists()
    with claimed(f"unix:{path}"):
        assert not path.exists()


def test_socket_and_lock_are_removed_at_the_end(sockets: Path) -> None:
    with claimed(f"unix:{sockets / 's'}"):
        pass
    assert list(sockets.iterdir()) == []


def test_only_one_of_many_threads_holds_a_socket(sockets: Path) -> None:
    inside = 0
    won = []
    start = threading.Barrier(8)

    def claim() -> None:
        nonlocal inside
        start.wait()
        for _ in range(50):
            try:
                with claimed(f"unix:{sockets / 's'}"):
                    inside += 1
                    won.append(inside)
                    inside -= 1
            except StartupError:
                pass

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(won) == {1}


def test_a_file_that_is_no_socket_is_kept(sockets: Path) -> None:
    path = sockets / "s"
    path.write_text("mine")
    with (
        pytest.raises(StartupError, match="a file that is not a socket exists there"),
        claimed(f"unix:{path}"),
    ):
        pass
    assert path.read_text() == "mine"


def test_a_missing_directory_is_refused(sockets: Path) -> None:
    with (
        pytest.raises(StartupError, match="No such file or directory"),
        claimed(f"unix:{sockets / 'nowhere' / 's'}"),
    ):
        pass


@pytest.mark.parametrize("address", ["unix:", "unix:///", "unix:."])
def test_an_address_without_a_file_is_refused(address: str) -> None:
    with (
        pytest.raises(StartupError, match=f"cannot listen on {address}: it must name a file"),
        claimed(address),
    ):
        pass


def test_a_path_that_is_too_long_is_refused_with_its_length(sockets: Path) -> None:
    path = sockets / ("s" * MAX_PATH_BYTES)
    with (
        pytest.raises(StartupError, match=f"at most 107 bytes, got {len(str(path))}"),
        claimed(f"unix:{path}"),
    ):
        pass


@pytest.mark.parametrize("address", ["127.0.0.1:0", "unix-abstract:any"])
def test_other_addresses_are_not_locked(address: str) -> None:
    with claimed(address), claimed(address):
        pass


def test_a_socket_without_a_server_is_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "left.sock"
    with claimed(f"unix:{path}"), socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
    assert not path.exists()

"""Exclusive use of Unix sockets, so that a second process cannot take one over.

The system lets a process replace another's socket, which nobody can reach any more, and gRPC does
so by default. A lock file beside the socket prevents this. The system releases the lock when its
owner ends for whatever reason, and the owner removes the file when it stops.
"""

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from shaperouter_service.errors import StartupError

# Maximum bytes of a path in an address of Linux, without the final zero.
MAX_PATH_BYTES = 107


def socket_path(address: str) -> Path | None:
    """The path of `unix:PATH` or `unix:///PATH`; None for other addresses."""
    if not address.startswith("unix:"):
        return None
    path = address.removeprefix("unix:")
    return Path(path.removeprefix("//") if path.startswith("///") else path)


@contextlib.contextmanager
def claimed(address: str, *, option: str = "listen") -> Iterator[None]:
    """Reserves a Unix socket for this process inside the context; ignores other addresses.

    Removes the socket of a dead process. Bind servers inside the context.

    Args:
        address: HOST:PORT, unix:PATH or unix-abstract:NAME.
        option: Name of the option with the address, for errors.

    Raises:
        StartupError: Another process listens on the socket, or the path cannot be used.
    """
    path = socket_path(address)
    if path is None:
        yield
        return
    failure = f"{option}: cannot listen on {address}"
    if not path.name:
        raise StartupError(f"{failure}: it must name a file")
    if (length := len(os.fsencode(path))) > MAX_PATH_BYTES:
        raise StartupError(
            f"{failure}: the path must have at most {MAX_PATH_BYTES} bytes, got {length}"
        )
    lock = path.with_name(f"{path.name}.lock")
    try:
        held = _locked(lock)
        try:
            _remove_stale(path)
        except BaseException:
            _release(held, lock)
            raise
    except BlockingIOError as error:
        raise StartupError(f"{failure}: another process listens there") from error
    except OSError as error:
        raise StartupError(f"{failure}: {error.strerror}") from error
    try:
        yield
    finally:
        # A server that has bound it but was never started leaves it.
        with contextlib.suppress(OSError):
            if path.is_socket():
                path.unlink()
        _release(held, lock)


def _locked(lock: Path) -> int:
    """Creates and locks a file, and returns its descriptor.

    Raises:
        BlockingIOError: Another process has locked it.
    """
    while True:
        held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The previous owner may have removed the file before this process locked it.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(held), lock.stat()):
                    return held
        except BaseException:
            os.close(held)
            raise
        os.close(held)


def _release(held: int, lock: Path) -> None:
    # This order matters: no other process may find an unlocked file.
    with contextlib.suppress(OSError):
        lock.unlink()
    os.close(held)


def _remove_stale(path: Path) -> None:
    """Removes a socket on which no process listens.

    Raises:
        BlockingIOError: A process listens, although it has not locked the socket.
        FileExistsError: The file is not a socket.
    """
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise FileExistsError(0, "a file that is not a socket exists there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            # Raises BlockingIOError if a busy process accepts no connection now.
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise BlockingIOError

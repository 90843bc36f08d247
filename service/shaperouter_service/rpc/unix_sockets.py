"""Unix sockets belong to one process at a time, as TCP ports do.

The system lets a process replace the socket of another, which then lives on where nobody reaches
it; gRPC does so unasked. A lock file beside the socket stands for it: the system releases the lock
when its owner ends, however that happens. The file is removed with the owner's last step.
"""

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from shaperouter_service.errors import StartupError

# Bytes of a path that fit into an address of Linux, without the zero at its end.
MAX_PATH_BYTES = 107


def socket_path(address: str) -> Path | None:
    """The path of `unix:PATH` or `unix:///PATH`; None of any other address."""
    if not address.startswith("unix:"):
        return None
    path = address.removeprefix("unix:")
    return Path(path.removeprefix("//") if path.startswith("///") else path)


@contextlib.contextmanager
def claimed(address: str, *, option: str = "listen") -> Iterator[None]:
    """Keeps a Unix socket for this process inside of the context, and does nothing for other ones.

    A socket that a process left behind when it died is removed. Servers are bound inside.

    Args:
        address: HOST:PORT, unix:PATH or unix-abstract:NAME.
        option: That the address comes from.

    Raises:
        StartupError: Another process listens there, or the path cannot be used.
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
        _release(held, lock)


def _locked(lock: Path) -> int:
    """Makes and locks a file, and returns its descriptor.

    Raises:
        BlockingIOError: Another process has it.
    """
    while True:
        held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its owner may have removed it before this process had the lock.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(held), lock.stat()):
                    return held
        except BaseException:
            os.close(held)
            raise
        os.close(held)


def _release(held: int, lock: Path) -> None:
    # In this order: nobody ever finds a file that stands for nothing.
    with contextlib.suppress(OSError):
        lock.unlink()
    os.close(held)


def _remove_stale(path: Path) -> None:
    """Removes a socket that nobody listens at.

    Raises:
        BlockingIOError: Somebody does, who has not locked it.
        FileExistsError: There is something else.
    """
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise FileExistsError(0, "a file that is not a socket exists there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            # A busy process that accepts nothing now raises BlockingIOError.
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise BlockingIOError

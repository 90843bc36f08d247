"""A network between two processes that can be cut silently, delayed, or broken."""

import contextlib
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path


class Proxy:
    """Forwards a TCP port of this machine to a Unix socket.

    While it is `cut`, no data arrives, and no connection breaks or is refused. After `mend`, data
    that was sent meanwhile arrives, as with TCP.

    Attributes:
        port: The TCP port.
        delay: Maximum time that a piece of data waits, in seconds. Each waits for a random part of
            it, so data of different connections changes its order.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._open = threading.Event()
        self._open.set()
        self.delay = 0.0
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._open.clear()

    def mend(self) -> None:
        self._open.set()

    def disconnect(self) -> None:
        """Ends all connections; new ones are accepted."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.mend()
        self.delay = 0.0
        # Wakes the thread that accepts, which closing alone would not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                outer, _ = self._listener.accept()
                threading.Thread(target=self._forward, args=(outer,), daemon=True).start()

    def _forward(self, outer: socket.socket) -> None:
        with outer, socket.socket(socket.AF_UNIX) as inner, contextlib.suppress(OSError):
            # Fails while nobody listens.
            inner.connect(str(self._target))
            with self._known(outer), self._known(inner):
                back = threading.Thread(target=self._pump, args=(inner, outer), daemon=True)
                back.start()
                self._pump(outer, inner)
                back.join()

    @contextlib.contextmanager
    def _known(self, connection: socket.socket) -> Iterator[None]:
        with self._lock:
            self._connections.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._connections.discard(connection)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        """Forwards one direction until it ends.

        The other direction continues, as with TCP: an end may send its answer and close its
        connection, and the answer must still arrive.
        """
        forwards = True
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._open.wait()
                if self.delay:
                    time.sleep(random.uniform(0, self.delay))
                # What comes after the target has closed its connection is lost.
                if forwards:
                    forwards = _send(target, data)
        # Forward the end of a stream, too.
        self._open.wait()
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def _send(target: socket.socket, data: bytes) -> bool:
    """Sends data; returns whether the target's end is still there."""
    try:
        target.sendall(data)
    except OSError:
        return False
    return True

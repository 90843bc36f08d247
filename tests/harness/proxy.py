"""A network between two processes that can be cut silently."""

import contextlib
import socket
import threading
from pathlib import Path


class Proxy:
    """Forwards a TCP port of this machine to a Unix socket.

    While it is `cut`, no data arrives, and no connection breaks or is refused. After `mend`, the
    data arrives that was sent meanwhile, as with TCP.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._open = threading.Event()
        self._open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._open.clear()

    def mend(self) -> None:
        self._open.set()

    def close(self) -> None:
        self.mend()
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
            back = threading.Thread(target=self._pump, args=(inner, outer), daemon=True)
            back.start()
            self._pump(outer, inner)
            back.join()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._open.wait()
                target.sendall(data)
        # Forward the end of a stream, too.
        self._open.wait()
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

"""llama.cpp's own server, with its defaults but for slots and context.

It has 8 slots of the model's 1,024 positions, as the service has. By default it keeps what each
slot has read, gives a request to the slot whose prompt is most like its own, moves what idle slots
have read into a cache in memory (`--cache-ram`), and runs all slots together.
"""

import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.checkpoint import POSITIONS
from common.protocol import arguments, converse
from harness.waiting import wait_until

SLOTS = 8
START_SECONDS, POLL_SECONDS = 60.0, 0.1


class LlamaServer:
    """The running server."""

    packages = ("gguf",)

    def __init__(self, address: str) -> None:
        self.address = address


@contextmanager
def load() -> Iterator[LlamaServer]:
    """Starts the server, and waits until it answers."""
    given = arguments()
    program = shutil.which("llama-server", path=str(Path(sys.executable).parent))
    if program is None:
        raise FileNotFoundError("llama-server is missing; make bench-conversations builds it")
    # It cannot choose a port itself. Another program may take this one first; then it ends at once.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [
            program,
            *("--model", str(given.model)),
            *("--host", "127.0.0.1"),
            *("--port", str(port)),
            *("--threads", str(given.threads)),
            *("--parallel", str(SLOTS)),
            *("--ctx-size", str(SLOTS * POSITIONS)),
        ],
        stdin=subprocess.DEVNULL,
    )
    try:
        _wait(process, f"http://127.0.0.1:{port}/health")
        yield LlamaServer(f"127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait()


def _wait(process: "subprocess.Popen[bytes]", url: str) -> None:
    """Waits until the server is healthy, which it says only if asked."""

    def answered() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"llama-server ended with code {process.poll()}; see its log")
        try:
            with urllib.request.urlopen(url, timeout=START_SECONDS):
                return True
        except OSError:
            return False

    wait_until(answered, timeout=START_SECONDS, pause=POLL_SECONDS)


if __name__ == "__main__":
    converse(load(), lambda *_: {}, lambda server: {"address": server.address})

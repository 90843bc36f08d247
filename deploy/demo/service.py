"""A service that runs during a demo, as a process on free ports."""

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console

START_SECONDS = 180.0

console = Console(highlight=False)


@dataclass(frozen=True, kw_only=True)
class Addresses:
    """Addresses of the service."""

    grpc: str
    metrics: str


@contextmanager
def service(cache: str, *arguments: str) -> Iterator[Addresses]:
    """Runs the service until the end of the context.

    Args:
        cache: Directory of the compile cache.
        arguments: Further arguments of `shaperouterd serve`; by default, the embedded model.
    """
    command = [sys.executable, "-m", "shaperouter_service", "serve", "--log-format=json"]
    command += ["--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0"]
    command += ["--http-listen=off", f"--compile-cache={cache}"]
    process = subprocess.Popen([*command, *arguments], stderr=subprocess.PIPE, text=True)
    log = Log(process)
    try:
        with console.status("Starting the service: importing TensorFlow, loading the weights"):
            started = time.monotonic()
            listening = log.wait_for("listening")
            log.wait_for("ready")
        console.print(f"Service ready after {time.monotonic() - started:.1f} s.")
        yield Addresses(
            grpc=f"127.0.0.1:{listening['grpc_port']}", metrics=str(listening["metrics"])
        )
    finally:
        process.terminate()
        code = process.wait()
        console.print(f"Service stopped, exit code {code}.")


class Log:
    """The service's log, read by a thread so that the service never waits for us."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stderr or ():
            self._lines.put(line)
        self._lines.put(None)

    def wait_for(self, event: str) -> dict[str, Any]:
        """Returns the next line of an event; prints the log if the service ends instead."""
        seen = []
        try:
            while (line := self._lines.get(timeout=START_SECONDS)) is not None:
                seen.append(line)
                if line.startswith("{") and (entry := json.loads(line))["event"] == event:
                    return dict(entry)
        except queue.Empty:
            sys.exit(f"No {event!r} within {START_SECONDS:.0f} s. It said:\n" + "".join(seen))
        sys.exit("The service ended before it was ready. It said:\n" + "".join(seen))

"""The conductor's side of the line protocol, with contestants as processes."""

import json
import os
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Self

from .paths import LOGS, PYTHON_PATH, environment_python

# Tracing and compiling by Transformers takes half a minute on two quiet cores.
TIMEOUT = 300.0
STOP_TIMEOUT = 60.0


class PeerError(Exception):
    """A contestant failed; the message says why."""


class PeerProcess:
    """A contestant's process, loaded; its log is in `build/bench/logs`.

    Attributes:
        pid: Process id.
        greeting: Its first message, after loading.
    """

    def __init__(
        self, *, name: str, environment: str, module: str, arguments: Sequence[str]
    ) -> None:
        """Starts the process, and returns once it has loaded.

        Args:
            name: Name of its log.
            environment: Folder of its environment, relative to the repository.
            module: Module to run.
            arguments: Its command line.

        Raises:
            PeerError: It does not load.
        """
        python = environment_python(environment)
        if not python.exists():
            raise PeerError(f"{environment} is missing; make bench makes it")
        LOGS.mkdir(parents=True, exist_ok=True)
        with (LOGS / f"{name}.log").open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [str(python), "-m", module, *arguments],
                env=os.environ | {"PYTHONPATH": PYTHON_PATH},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.pid = self._process.pid
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self.greeting: Mapping[str, Any] = self._receive(TIMEOUT)

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of its packages."""
        versions: Mapping[str, str] = self.greeting["versions"]
        return versions

    def ask(self, question: Mapping[str, Any], *, timeout: float = TIMEOUT) -> dict[str, Any]:
        """Sends a question and waits for the answer.

        Args:
            question: The question, with its `task`.
            timeout: Seconds to wait.

        Raises:
            PeerError: It fails, or does not answer.
        """
        assert self._process.stdin
        try:
            print(json.dumps(question), file=self._process.stdin, flush=True)
        except OSError as error:
            raise PeerError("it is not running") from error
        answer = self._receive(timeout)
        if "failed" in answer:
            raise PeerError(answer["failed"])
        return answer

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _receive(self, timeout: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            self._process.kill()
            raise PeerError(f"no answer within {timeout:.0f} s") from None
        if not line:
            raise PeerError(f"ended with exit code {self._process.wait()}; see its log")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

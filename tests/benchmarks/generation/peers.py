"""The conductor's side of the line protocol: contestants as processes."""

import json
import os
import queue
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from .contestants import THREADS, Entry
from .workloads import NEW_TOKENS, Workload

REPOSITORY = Path(__file__).parents[3]
WORK = REPOSITORY / "build" / "bench"
CHECKPOINT = WORK / "gpt2-small"
CONVERTED = WORK / "gpt2-small-ctranslate2"
PYTHON_PATH = os.pathsep.join(str(REPOSITORY / "tests" / room) for room in ("benchmarks", ""))
# Tracing and compiling by Transformers takes half a minute on two quiet cores.
TIMEOUT = 300.0
STOP_TIMEOUT = 60.0


class PeerError(Exception):
    """A contestant could not do something; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A generation.

    Attributes:
        seconds: From token ids to token ids.
        device_seconds: Of it in compiled graphs, where that is known.
        token_ids: Of each prompt.
    """

    seconds: float
    device_seconds: float | None
    token_ids: list[list[int]]


class Peer:
    """A contestant's process, loaded; its log is in `build/bench/logs`."""

    def __init__(self, entry: Entry) -> None:
        """Starts it, and returns once it has loaded.

        Raises:
            PeerError: It does not.
        """
        self.entry = entry
        python = REPOSITORY / entry.environment / "bin" / "python"
        if not python.exists():
            raise PeerError(f"{entry.environment} is missing; make bench makes it")
        logs = WORK / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        with (logs / f"{entry.name}.log").open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [
                    str(python),
                    "-m",
                    f"{__package__}.{entry.module}",
                    f"--model={CONVERTED if entry.converted else CHECKPOINT}",
                    f"--threads={THREADS}",
                    *entry.options,
                ],
                env=os.environ | {"PYTHONPATH": PYTHON_PATH},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self.versions: Mapping[str, str] = self._receive()["versions"]

    def generate(self, workload: Workload) -> Answer:
        """Has it run a workload, and returns what it made.

        Raises:
            PeerError: It fails, or makes another number of tokens.
        """
        question = {
            "task": "generate",
            "prompts": workload.prompts,
            "new_tokens": NEW_TOKENS,
            "options": workload.options,
        }
        answer = Answer(**self._ask(question))
        made = [len(token_ids) for token_ids in answer.token_ids]
        if made != [NEW_TOKENS] * len(workload.prompts):
            raise PeerError(f"made sequences of {made} tokens, not of {NEW_TOKENS}")
        return answer

    def graphs(self) -> list[dict[str, Any]]:
        """What it has traced and compiled since its start, once nothing is being compiled.

        Raises:
            PeerError: It fails.
        """
        graphs: list[dict[str, Any]] = self._ask({"task": "graphs"})["graphs"]
        return graphs

    def traces(self) -> int:
        """The number of traces in all.

        Raises:
            PeerError: It fails.
        """
        return sum(graph["traces"] for graph in self.graphs())

    def close(self) -> None:
        """Ends it."""
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

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin
        try:
            print(json.dumps(question), file=self._process.stdin, flush=True)
        except OSError as error:
            raise PeerError("it is not running") from error
        answer = self._receive()
        if "failed" in answer:
            raise PeerError(answer["failed"])
        return answer

    def _receive(self) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=TIMEOUT)
        except queue.Empty:
            self._process.kill()
            raise PeerError(f"no answer within {TIMEOUT:.0f} s") from None
        if not line:
            raise PeerError(f"ended with exit code {self._process.wait()}; see its log")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

"""A contestant's server and the load generator, called by the conductor."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

from common.checkpoint import SMALL, TINY, Size, convert_checkpoint, make_checkpoint
from common.paths import THREADS, WORK
from common.processes import PeerProcess

from .contestants import Entry
from .outcomes import End, Outcome
from .traffic import Request

# Seconds that answers may take to come back after the last deadline has passed.
MARGIN = 60.0
# A server is at rest when all of its processes together take less of one core than this.
REST_SHARE, REST_SECONDS = 0.2, 1.0


class Files(Protocol):
    """A checkpoint in the formats that contestants load."""

    @property
    def checkpoint(self) -> Path:
        """The checkpoint in the Hugging Face layout."""

    @property
    def converted(self) -> Path:
        """The checkpoint in CTranslate2's format."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """The checkpoint that all contestants serve.

    Attributes:
        name: Name of its folder in `build/bench`.
        size: Its dimensions.
    """

    name: str
    size: Size

    @property
    def checkpoint(self) -> Path:
        """The checkpoint in the Hugging Face layout."""
        return WORK / self.name

    @property
    def converted(self) -> Path:
        """The checkpoint in CTranslate2's format."""
        return WORK / f"{self.name}-ctranslate2"

    def make(self) -> None:
        """Writes the checkpoint, unless it exists."""
        make_checkpoint(self.checkpoint, self.size)

    def convert(self) -> None:
        """Converts the checkpoint with CTranslate2's converter, unless that exists."""
        convert_checkpoint(self.checkpoint, self.converted)


GPT2_SMALL = Model(name="gpt2-small", size=SMALL)
GPT2_TINY = Model(name="gpt2-tiny", size=TINY)


class Contestant(PeerProcess):
    """The process of a ready server.

    Attributes:
        entry: The contestant.
        address: Address of its gRPC server.
    """

    def __init__(self, entry: Entry, model: Files, *, options: Sequence[str] = ()) -> None:
        """Starts the server, and returns once it is ready.

        Raises:
            PeerError: It fails to start.
        """
        self.entry = entry
        super().__init__(
            name=entry.name,
            environment=entry.environment,
            module=entry.module,
            arguments=[
                f"--model={model.converted if entry.converted else model.checkpoint}",
                f"--threads={THREADS}",
                *(f"--option={option}" for option in options),
            ],
        )
        self.address: str = self.greeting["address"]

    def counters(self) -> dict[str, float]:
        """Its counters since its start."""
        counters: dict[str, float] = self.ask({"task": "counters"})["counters"]
        return counters

    def processes(self) -> list[psutil.Process]:
        """Its processes, starting with the one that answers."""
        process = psutil.Process(self.pid)
        return [process, *process.children(recursive=True)]

    def settle(self, timeout: float) -> float:
        """Waits until the server is idle: it compiles nothing and has dropped abandoned requests.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            The seconds that took.
        """
        started = time.monotonic()
        before = self._cpu_seconds()
        while time.monotonic() - started < timeout:
            time.sleep(REST_SECONDS)
            now = self._cpu_seconds()
            if now - before < REST_SHARE * REST_SECONDS:
                break
            before = now
        return time.monotonic() - started

    def _cpu_seconds(self) -> float:
        seconds = 0.0
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                seconds += times.user + times.system
        return seconds


class LoadGenerator(PeerProcess):
    """The process that sends requests."""

    def __init__(self, deadline: float) -> None:
        """Starts the generator.

        Args:
            deadline: Seconds that each request may take.
        """
        self._deadline = deadline
        super().__init__(
            name="generator",
            environment=".venvs/bench-conductor",
            module=f"{__package__}.generator",
            arguments=[],
        )

    def open(self, contestant: Contestant, requests: Sequence[Request]) -> list[Outcome]:
        """Sends each request at its time; returns the outcomes in the same order."""
        seconds = requests[-1].at if requests else 0.0
        return self._send("open", contestant, requests, seconds)

    def closed(
        self,
        contestant: Contestant,
        requests: Sequence[Request],
        *,
        concurrency: int,
        seconds: float,
    ) -> list[Outcome]:
        """Keeps this many requests running; returns the outcomes in the order of their ends.

        Args:
            contestant: The server.
            requests: The requests, in order.
            concurrency: Number of running requests.
            seconds: Time after which no request is started.
        """
        more = {"concurrency": concurrency, "seconds": seconds}
        return self._send("closed", contestant, requests, seconds, more)

    def _send(
        self,
        task: str,
        contestant: Contestant,
        requests: Sequence[Request],
        seconds: float,
        more: Mapping[str, Any] | None = None,
    ) -> list[Outcome]:
        question = {
            "task": task,
            "address": contestant.address,
            "streams": contestant.entry.streams,
            "deadline": self._deadline,
            "requests": [asdict(request) for request in requests],
            **(more or {}),
        }
        outcomes = self.ask(question, timeout=seconds + self._deadline + MARGIN)["outcomes"]
        return [Outcome(**(outcome | {"end": End(outcome["end"])})) for outcome in outcomes]

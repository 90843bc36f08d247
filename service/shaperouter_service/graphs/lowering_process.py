"""Tracing and lowering in another process, so that requests in this one continue meanwhile.

Tracing is Python code, and TensorFlow holds the interpreter while it lowers a trace: no other
thread of this process could run.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, Pipe
from typing import Any

import structlog

from shaperouter_service.decoding.lowering import Lowered
from shaperouter_service.decoding.program import Program
from shaperouter_service.models import Model
from shaperouter_service.telemetry.logs import log_settings

# Seconds without a trace after which the process ends, to give back its memory: most of a gigabyte.
IDLE = 60.0

# Seconds after which the process has hung: far more than it takes to start, or to trace a program,
# on a machine that has much else to do.
TIMEOUT = 300.0

# TensorFlow must not greet in the log.
ENVIRONMENT: Mapping[str, str] = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the process is sent: a program to trace.

    Attributes:
        model: Its name.
        plan: Makes the program of the model.
    """

    model: str
    plan: Callable[[Model], Program]


@dataclass(frozen=True, kw_only=True)
class Traced:
    """What it answers.

    Attributes:
        lowered: What the program came to.
        traces: Times the Python code was run.
    """

    lowered: Lowered
    traces: int


@dataclass(frozen=True, kw_only=True)
class NotTraced:
    """What it answers where the code raises.

    Attributes:
        error: Why.
    """

    error: str


class LoweringProcess:
    """A process that traces and lowers: started when needed, ended when idle.

    Methods may be called from any thread; one program is traced at a time.
    """

    def __init__(
        self, models: Iterable[Model], *, idle: float = IDLE, timeout: float = TIMEOUT
    ) -> None:
        """Prepares it; nothing is started yet.

        Args:
            models: Whose programs it will trace.
            idle: Seconds without a trace after which it ends.
            timeout: Seconds after which it has hung.
        """
        self._specs = {model.name: model.spec for model in models}
        self._idle = idle
        self._timeout = timeout
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._last_used = 0.0

    @property
    def running(self) -> bool:
        """Whether it has been started and not ended."""
        child = self._child
        return child is not None and child.process.poll() is None

    def lower(self, program: Program) -> Lowered:
        """Traces a program there, or here after all if that does not come off.

        Raises:
            Exception: Whatever the program's code raises.
        """
        with self._lock:
            try:
                answer = self._ask(Order(model=program.model.name, plan=program.plan))
            # It says nothing, has ended, or could not be started.
            except (EOFError, OSError) as error:
                code, why = self._end(), str(error)
                if code is not None and not isinstance(error, TimeoutError):
                    why = f"the tracing process ended with code {code}"
                answer = NotTraced(error=why)
        if isinstance(answer, NotTraced):
            log.warning("traced in the serving process", graph=program.label, why=answer.error)
            return program.lower()
        program.traces += answer.traces
        return answer.lowered

    def end(self) -> None:
        """Ends the process, if there is one; the next program to trace starts another."""
        with self._lock:
            self._end()

    def _ask(self, order: Order) -> Traced | NotTraced:
        child = self._started()
        child.connection.send(order)
        answer: Traced | NotTraced = child.receive(self._timeout)
        self._last_used = time.monotonic()
        return answer

    def _started(self) -> "_Child":
        if self._child is not None and self.running:
            return self._child
        self._end()
        child = self._child = _Child.start()
        # It first says that it listens: what is sent then waits for nobody.
        child.receive(self._timeout)
        child.connection.send(self._specs)
        threading.Thread(target=self._end_when_idle, args=[child], daemon=True).start()
        return child

    def _end(self) -> int | None:
        """Ends the process; returns its exit code, which may be of an end of its own."""
        child, self._child = self._child, None
        return None if child is None else child.end()

    def _end_when_idle(self, child: "_Child") -> None:
        rest = self._idle
        while rest > 0:
            # There is no event to wait for: that nothing came is what ends it.
            time.sleep(rest)
            with self._lock:
                if child is not self._child:
                    return
                rest = self._last_used + self._idle - time.monotonic()
                if rest <= 0:
                    self._end()


@dataclass(frozen=True)
class _Child:
    """One life of the process."""

    process: "subprocess.Popen[bytes]"
    connection: Connection

    @classmethod
    def start(cls) -> "_Child":
        """Starts it; it ends with this process, which holds the other end of its standard input.

        It has the priority of the thread that starts it: a compile thread's.

        Raises:
            OSError: The system has no room for it.
        """
        ours, theirs = Pipe()
        with theirs:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "shaperouter_service.graphs.lowering_child",
                    str(theirs.fileno()),
                    json.dumps(asdict(log_settings())),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env={**os.environ, **ENVIRONMENT},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        log.info("tracing process started", pid=process.pid)
        return cls(process, ours)

    def receive(self, timeout: float) -> Any:
        """Waits for what it says.

        Raises:
            EOFError: It has ended.
            TimeoutError: It says nothing.
        """
        if not self.connection.poll(timeout):
            raise TimeoutError(f"the tracing process sent nothing for {timeout:g} s")
        return self.connection.recv()

    def end(self) -> int:
        """Ends it and waits for that; returns its exit code, which may be of an end of its own."""
        # What is ending already keeps its code.
        self.process.kill()
        code = self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.connection.close()
        return code

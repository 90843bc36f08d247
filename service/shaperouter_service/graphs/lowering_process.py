"""A process that traces and lowers programs while the worker keeps serving requests.

Tracing is Python code, and TensorFlow holds the interpreter lock while it lowers a trace, so no
other thread of the worker could run.
"""

import functools
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
from shaperouter_service.graphs.graph_program import CompiledProgram
from shaperouter_service.models import Model, weightless_model
from shaperouter_service.models.call_model import CallModel
from shaperouter_service.telemetry.logs import log_settings

# Idle seconds after which the process ends, to free its memory: most of a gigabyte.
IDLE = 60.0

# Seconds without an answer after which the process counts as hung: far more than it takes to start,
# or to trace a program, on a busy machine.
TIMEOUT = 300.0

# Keeps TensorFlow's startup messages out of the log.
ENVIRONMENT: Mapping[str, str] = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class LoweringRequest:
    """A program to trace, as sent to the process.

    Attributes:
        model: Name of the model.
        plan: Makes the program from the model.
    """

    model: str
    plan: Callable[[Any], CompiledProgram]


@dataclass(frozen=True, kw_only=True)
class LoweringResult:
    """The answer to a request.

    Attributes:
        lowered: The lowered program.
        traces: Number of times the Python code was run.
    """

    lowered: Lowered
    traces: int


@dataclass(frozen=True, kw_only=True)
class LoweringFailure:
    """The answer to a request that failed.

    Attributes:
        error: Why it failed.
    """

    error: str


class LoweringProcess:
    """A process that traces and lowers programs, started on demand and ended when idle.

    Methods may be called from any thread; one program is traced at a time.
    """

    def __init__(
        self,
        models: Iterable[Model | CallModel],
        *,
        idle: float = IDLE,
        timeout: float = TIMEOUT,
    ) -> None:
        """Stores the settings; the first program starts the process.

        Args:
            models: The models whose programs it traces. Those without a recipe are traced here.
            idle: Idle seconds after which the process ends.
            timeout: Seconds without an answer after which the process counts as hung.
        """
        self._recipes: dict[str, Callable[[], Any]] = {}
        self._add(models)
        self._idle = idle
        self._timeout = timeout
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._last_used = 0.0

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        child = self._child
        return child is not None and child.process.poll() is None

    def lower(self, program: CompiledProgram) -> Lowered:
        """Traces a program in the process, or in this one if that fails.

        Raises:
            Exception: The program's code raised it.
        """
        if program.model.name not in self._recipes:
            return program.lower()
        with self._lock:
            try:
                answer = self._request(LoweringRequest(model=program.model.name, plan=program.plan))
            # The process does not answer, has ended, or could not be started.
            except (EOFError, OSError) as error:
                code, why = self._end(), str(error)
                if code is not None and not isinstance(error, TimeoutError):
                    why = f"the tracing process ended with code {code}"
                answer = LoweringFailure(error=why)
        if isinstance(answer, LoweringFailure):
            log.warning("traced in the serving process", graph=program.label, reason=answer.error)
            return program.lower()
        program.traces += answer.traces
        return answer.lowered

    def add(self, models: Iterable[Model | CallModel]) -> None:
        """Takes further models; a running process ends, as it does not know them."""
        with self._lock:
            self._end()
            self._add(models)

    def remove(self, model: str) -> None:
        """Forgets a model."""
        with self._lock:
            self._end()
            self._recipes.pop(model, None)

    def _add(self, models: Iterable[Model | CallModel]) -> None:
        recipes = ((model.name, _recipe(model)) for model in models)
        self._recipes |= {name: recipe for name, recipe in recipes if recipe is not None}

    def end(self) -> None:
        """Ends the process if it is running; the next program starts a new one."""
        with self._lock:
            self._end()

    def _request(self, request: LoweringRequest) -> LoweringResult | LoweringFailure:
        child = self._started()
        child.connection.send(request)
        answer: LoweringResult | LoweringFailure = child.receive(self._timeout)
        self._last_used = time.monotonic()
        return answer

    def _started(self) -> "_Child":
        if self._child is not None and self.running:
            return self._child
        self._end()
        child = self._child = _Child.start()
        # The process first reports that it is listening, so sending the models does not block.
        child.receive(self._timeout)
        child.connection.send(self._recipes)
        threading.Thread(target=self._end_when_idle, args=[child], daemon=True).start()
        return child

    def _end(self) -> int | None:
        """Ends the process; returns its exit code, or None if there was no process.

        The code is its own if it had already ended.
        """
        child, self._child = self._child, None
        return None if child is None else child.end()

    def _end_when_idle(self, child: "_Child") -> None:
        rest = self._idle
        while rest > 0:
            # No event marks idleness, so sleep and look again.
            time.sleep(rest)
            with self._lock:
                if child is not self._child:
                    return
                rest = self._last_used + self._idle - time.monotonic()
                if rest <= 0:
                    self._end()


def _recipe(model: Model | CallModel) -> Callable[[], Any] | None:
    """Picklable function that makes a model without the values of its weights."""
    if isinstance(model, CallModel):
        return model.recipe
    return functools.partial(weightless_model, model.spec)


@dataclass(frozen=True)
class _Child:
    """One running instance of the process."""

    process: "subprocess.Popen[bytes]"
    connection: Connection

    @classmethod
    def start(cls) -> "_Child":
        """Starts an instance, which ends with this process: that holds its standard input.

        It inherits the low priority of the compile thread that starts it.

        Raises:
            OSError: The system cannot start it.
        """
        ours, theirs = Pipe()
        with theirs:
            process = subprocess.Popen(
                [
                    sys.executable,
                    # Modules of the working directory must not replace others.
                    "-P",
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
        """Waits for a message of the process and returns it.

        Raises:
            EOFError: The process has ended.
            TimeoutError: The process sent nothing in time.
        """
        if not self.connection.poll(timeout):
            raise TimeoutError(f"the tracing process sent nothing for {timeout:g} s")
        return self.connection.recv()

    def end(self) -> int:
        """Kills the process and waits for its end; returns its exit code.

        The code is its own if it had already ended.
        """
        # A process that is already ending keeps its exit code.
        self.process.kill()
        code = self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.connection.close()
        return code

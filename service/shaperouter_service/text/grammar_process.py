"""A process that makes grammars of constraints.

Some constraints within all limits of size take minutes, gigabytes, or more stack than there is: a
chain of rules, or alternatives of alternatives. They end this process, and not the router.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import weakref
from typing import TypeAlias

import structlog

from shaperouter_service.errors import ExhaustedError
from shaperouter_service.text.constraints import ConstraintError

# Maximum CPU seconds for one constraint. Published schemas take some milliseconds, the
# largest about a second.
MAX_SECONDS = 5

# Seconds in which a process must have read a constraint and answered. It may be stopped, or the
# system busy or out of memory.
PATIENCE = 60.0

# Answers that are kept: callers send the same constraint again and again.
_KEPT = 64

# Bytes to read at a time, as many as a pipe holds.
_PART = 2**16

# Processes to try for a constraint: one may be killed through no fault of the constraint.
_ATTEMPTS = 2
# What a constraint has done to a process that ended in this way.
_FAULTS = {
    -signal.SIGXCPU: "takes too long to compile",
    -signal.SIGSEGV: "is nested too deeply",
    -signal.SIGABRT: "needs too much memory",
}

log = structlog.get_logger(__name__)

_Asked: TypeAlias = tuple[str, str | tuple[str, ...], bool, str]


class GrammarProcess:
    """Makes grammars in a process of its own. Only one thread at a time may use it."""

    def __init__(self) -> None:
        """Starts no process before the first constraint."""
        self._process: _Process | None = None
        self._answers: dict[_Asked, dict[str, str]] = {}

    def grammar(
        self, name: str, value: str | tuple[str, ...], *, drops_first_space: bool, calls: str = ""
    ) -> str:
        """Makes a grammar of an option, and checks it; see `grammar_of`.

        Raises:
            ConstraintError: The constraint is malformed, too large, or can never be met.
            ExhaustedError: The processes were ended by others, for want of memory.
            OSError: The system cannot start a process.
        """
        asked = (name, value, drops_first_space, calls)
        answer = self._answers.pop(asked, None) or self._ask(asked)
        if "defect" in answer:
            raise RuntimeError(answer["defect"])
        # At the end, so that the answer that was asked for the longest time ago goes first.
        self._answers[asked] = answer
        if len(self._answers) > _KEPT:
            del self._answers[next(iter(self._answers))]
        if "grammar" in answer:
            return answer["grammar"]
        raise ConstraintError(answer["rule"], answer["path"])

    def _ask(self, asked: _Asked) -> dict[str, str]:
        for _ in range(_ATTEMPTS):
            process, self._process = self._process or _Process(), None
            try:
                answer = process.answer(asked)
            except BaseException:
                # Its answer may come later, and would be taken for that to another constraint.
                process.kill()
                raise
            if answer:
                self._process = process
                return answer
            ended = process.end()
            log.warning("grammar process ended", exit_code=ended)
            if ended in _FAULTS:
                return {"rule": f"cannot be used: it {_FAULTS[ended]}", "path": ""}
        raise ExhaustedError("memory")


class _Process:
    """A running process. It ends with its input, so also with this process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            # Modules of the working directory must not replace others.
            [
                sys.executable,
                "-P",
                "-m",
                "shaperouter_service.text.grammar_child",
                str(MAX_SECONDS),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            # Ctrl-C is for the router, which still finishes requests.
            start_new_session=True,
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise TypeError("the process has no pipes")
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._input, False)
        self.end = weakref.finalize(self, _end, self._process)

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """Ends it at once."""
        self._process.kill()
        self.end()

    def answer(self, asked: _Asked) -> dict[str, str] | None:
        """The answer; None if the process has ended, or had to be ended because it gave none."""
        deadline = time.monotonic() + PATIENCE
        try:
            with contextlib.suppress(BrokenPipeError):
                self._write(json.dumps(asked).encode() + b"\n", deadline)
            line = self._read_line(deadline)
        except TimeoutError:
            self._process.kill()
            return None
        answer: dict[str, str] | None = json.loads(line) if line else None
        return answer

    def _write(self, line: bytes, deadline: float) -> None:
        left = memoryview(line)
        while left:
            _wait(self._input, select.POLLOUT, deadline)
            left = left[os.write(self._input, left) :]

    def _read_line(self, deadline: float) -> bytes:
        """The next line; empty if the process has ended."""
        line = bytearray()
        while not line.endswith(b"\n"):
            _wait(self._output, select.POLLIN, deadline)
            part = os.read(self._output, _PART)
            if not part:
                return b""
            line += part
        return bytes(line)


def _wait(descriptor: int, event: int, deadline: float) -> None:
    """Waits until a pipe is ready, or its other end has been closed.

    Unlike `select`, `poll` takes any descriptor: a router with many connections has large ones.

    Raises:
        TimeoutError: It was not ready by the deadline.
    """
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(1e3 * max(0.0, deadline - time.monotonic())):
        raise TimeoutError


def _end(process: subprocess.Popen[bytes]) -> int:
    """Ends a process and returns its exit code."""
    with contextlib.suppress(BrokenPipeError):
        process.communicate()
    return process.wait()

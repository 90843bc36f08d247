"""A process that makes grammars of constraints.

Some constraints within all limits of size take minutes, gigabytes, or more stack than there is: a
chain of rules, or alternatives of alternatives. They end this process, and not the router.
"""

import contextlib
import json
import select
import signal
import subprocess
import sys
import weakref
from typing import TypeAlias

import structlog

from shaperouter_service.errors import ExhaustedError
from shaperouter_service.text.constraints import ConstraintError

# Maximum CPU seconds for one constraint. Published schemas take some milliseconds, the
# largest about a second.
MAX_SECONDS = 5

# Seconds to wait for an answer. The process may be stopped, or the system busy or out of memory.
PATIENCE = 60.0

# Answers that are kept: callers send the same constraint again and again.
_KEPT = 64

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
            process = self._process = self._process or _Process()
            if answer := process.answer(asked):
                return answer
            self._process = None
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
            text=True,
            # Ctrl-C is for the router, which still finishes requests.
            start_new_session=True,
        )
        self.end = weakref.finalize(self, _end, self._process)

    @property
    def pid(self) -> int:
        return self._process.pid

    def answer(self, asked: _Asked) -> dict[str, str] | None:
        """The answer; None if the process has ended, or had to be ended because it gave none."""
        if self._process.stdin is None or self._process.stdout is None:
            raise TypeError("the process has no pipes")
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        if not ready:
            self._process.kill()
        line = self._process.stdout.readline()
        answer: dict[str, str] | None = json.loads(line) if line else None
        return answer


def _end(process: subprocess.Popen[str]) -> int:
    """Ends a process and returns its exit code."""
    with contextlib.suppress(BrokenPipeError):
        process.communicate()
    return process.wait()

"""One role of the service as a process, which is restarted however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import psutil

from chaos import memory
from chaos.clock import Clock
from harness.memory import private_mebibytes

# Seconds until an ended process is restarted, as a kubelet does the first times.
_PAUSE = 0.3
# Seconds between two looks at the log of a process that starts.
_LOOK = 0.2
# Seconds that a process gets to end after SIGTERM.
_GRACE = 60.0
# Number of parts out of ten in which a slowed process runs; a part has 10 ms. A quota of a control
# group stops a process in the same way.
_PARTS, _OWN, _PART = 10, 2, 0.01
# System calls that slow files delay, and the time in microseconds.
_FILE_CALLS, _FILE_PAUSE = "openat,rename,mkdir,unlink,fsync,fdatasync", 100_000

# Exit codes of a process that was asked to end, and of one that was killed.
_ENDS = {0, -signal.SIGKILL}
# What a process logs once it can serve.
_SERVES = (b'"event": "ready"', b'"event": "worker ready"')

# Quantities that grow if a process forgets to free something.
MEMORY, THREADS, DESCRIPTORS = "memory in MiB", "threads", "descriptors"


@dataclass(frozen=True, kw_only=True)
class End:
    """The end of a process that nobody has ended.

    Attributes:
        name: Its name.
        code: Its exit code; None if it does not end when it should.
        served: Whether it had started so far that it could serve.
    """

    name: str
    code: int | None
    served: bool


OnEnd: TypeAlias = Callable[[End], None]


@dataclass(kw_only=True)
class Life:
    """One start of a process.

    Attributes:
        began: When it was started, in seconds on the monotonic clock.
        served: When it could first serve; infinite if it has not.
    """

    began: float
    served: float = float("inf")


class Process:
    """A router or a worker, which is restarted until `close`. Any thread may call it.

    Attributes:
        name: Its name.
        clock: Its clock of the day.
        lives: Its starts, in order.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        logs: Path,
        on_end: OnEnd,
        clock: Clock,
    ) -> None:
        """Starts it.

        Args:
            name: Its name, and that of its log.
            arguments: Arguments of `shaperouterd`.
            environment: All variables that it has.
            logs: Directory of logs; all processes of one name share a file.
            on_end: Called if it ends by itself, or does not end when it should.
            clock: Its clock of the day.
        """
        self.name, self.clock = name, clock
        self.lives: list[Life] = []
        self._arguments, self._environment = arguments, environment
        self._log = logs / f"{name}.log"
        self._on_end = on_end
        self._closing = threading.Event()
        self._starving, self._exhausting = threading.Lock(), threading.Lock()
        self._logged = 0
        self._process = self._start()
        self._keeper = threading.Thread(target=self._keep, name=name, daemon=True)
        self._keeper.start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.lives.append(Life(began=time.monotonic()))
        self._logged = self._log.stat().st_size if self._log.exists() else 0
        program = [sys.executable, "-m", "shaperouter_service", *self._arguments]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*program, "--log-format=json"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is ours to deal with.
                start_new_session=True,
            )

    def _keep(self) -> None:
        while True:
            self._note_when_it_serves()
            code = self._process.wait()
            if self._closing.is_set():
                return
            if code not in _ENDS:
                self._on_end(End(name=self.name, code=code, served=self._has_served()))
            if self._closing.wait(_PAUSE):
                return
            self._process = self._start()

    def _note_when_it_serves(self) -> None:
        while self._process.poll() is None:
            if self._has_served():
                self.lives[-1].served = time.monotonic()
                return
            # No event tells of a line in a log.
            if self._closing.wait(_LOOK):
                return

    def _has_served(self) -> bool:
        with self._log.open("rb") as log:
            log.seek(self._logged)
            logged = log.read()
        return any(each in logged for each in _SERVES)

    def measured(self) -> dict[str, float]:
        """What it and its children use now, by quantity; empty if it has ended."""
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self._process.pid)
            family = [process, *process.children(recursive=True)]
            return {
                MEMORY: sum(map(private_mebibytes, family)),
                THREADS: sum(each.num_threads() for each in family),
                DESCRIPTORS: sum(each.num_fds() for each in family),
            }
        return {}

    def send(self, number: signal.Signals) -> None:
        """Sends a signal; SIGTERM rolls it, as a new one starts once it has ended."""
        self._process.send_signal(number)

    def slow(self, until: threading.Event) -> None:
        """Lets it run for a fifth of the time, until the event is set."""
        process = self._process
        while not until.is_set():
            process.send_signal(signal.SIGSTOP)
            until.wait(_PART * (_PARTS - _OWN))
            process.send_signal(signal.SIGCONT)
            until.wait(_PART * _OWN)

    def starve(self, until: threading.Event) -> None:
        """Leaves it no new file descriptors until the event is set."""
        # One after the other, as each restores what it found.
        with self._starving, contextlib.suppress(psutil.Error):
            process = psutil.Process(self._process.pid)
            limits = process.rlimit(psutil.RLIMIT_NOFILE)
            process.rlimit(psutil.RLIMIT_NOFILE, (process.num_fds(), limits[1]))
            until.wait()
            process.rlimit(psutil.RLIMIT_NOFILE, limits)

    def bound(self, until: threading.Event) -> None:
        """Refuses it more memory until the event is set."""
        with self._starving, contextlib.suppress(psutil.Error):
            memory.bound(psutil.Process(self._process.pid), until)

    def exhaust(self, until: threading.Event) -> None:
        """Lets it run out of memory, so that the system kills it, until the event is set."""
        with self._exhausting, memory.exhausted(self._process.pid, self.name):
            until.wait()

    def slow_files(self, until: threading.Event) -> None:
        """Makes each of its calls that open or rename a file longer until the event is set."""
        inject = f"inject={_FILE_CALLS}:delay_enter={_FILE_PAUSE}"
        command = ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={_FILE_CALLS}"]
        command += ["-e", inject, "-p", str(self._process.pid)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as tracer:
            until.wait()
            # Leaves the process as it found it.
            tracer.terminate()

    def kill_children(self) -> None:
        """Kills its child processes, such as the one that compiles grammars."""
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self._process.pid).children(recursive=True):
                child.kill()

    def close(self) -> None:
        """Ends it; kills it only if it does not end."""
        self._closing.set()
        # The keeper may be starting one.
        while self._keeper.is_alive():
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGCONT)
                self._process.send_signal(signal.SIGTERM)
            self._keeper.join(_GRACE)
            if self._keeper.is_alive():
                self._on_end(End(name=self.name, code=None, served=True))
                self._process.kill()
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(_GRACE)


def environment(temporary: Path, mark: str, **variables: str) -> dict[str, str]:
    """Variables of a process.

    Args:
        temporary: Directory of its temporary files.
        mark: A variable by which the campaign's processes are found.
        **variables: Further ones.
    """
    kept = ("PATH", "PYTHONPATH", "HOME", "LANG")
    inherited = {name: os.environ[name] for name in kept if name in os.environ}
    return inherited | {"TMPDIR": str(temporary), mark: "1"} | variables

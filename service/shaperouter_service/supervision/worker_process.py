"""A local worker's process: starts, watches and restarts it, and ends it with its parent."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import structlog

from shaperouter_service.errors import StartupError
from shaperouter_service.system.process import EXIT_CONFIG

log = structlog.get_logger(__name__)

# Seconds before a dead worker is started again. Each death doubles them; a process that ran for
# STABLE seconds resets them.
FIRST_BACKOFF, LAST_BACKOFF, STABLE = 0.1, 30.0, 60.0

# Number of checks of a worker within the time that it may be silent.
CHECKS = 10


class Process(Protocol):
    """A process of the operating system; see `asyncio.subprocess.Process`."""

    pid: int

    @property
    def returncode(self) -> int | None:
        """The exit code; None while the process runs."""

    async def wait(self) -> int:
        """Waits for the process to end and returns its exit code."""

    def terminate(self) -> None:
        """Asks the process to end."""

    def kill(self) -> None:
        """Kills the process."""


# Starts a process of a worker, with additional options.
Spawn: TypeAlias = Callable[[Sequence[str]], Awaitable[Process]]


def spawning(arguments: Sequence[str], environment: Mapping[str, str]) -> Spawn:
    """Returns a function that starts processes of a worker.

    They are spawned, never forked. Their standard input is the reading end of a pipe from this
    process: if this process ends, even by SIGKILL, the pipe closes and they exit. Each has its own
    session, so that Ctrl-C on a terminal reaches only this process, which then drains.

    Args:
        arguments: Arguments of `shaperouterd worker`.
        environment: Variables in addition to those of this process.
    """

    async def spawn(options: Sequence[str]) -> Process:
        # The worker's options are its arguments; this process's option variables are not for it.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("SHAPEROUTER_")}
        return await asyncio.create_subprocess_exec(
            sys.executable,
            # Modules of the working directory must not replace others.
            "-P",
            "-m",
            "shaperouter_service",
            "worker",
            *arguments,
            *options,
            stdin=asyncio.subprocess.PIPE,
            env={**inherited, **environment},
            start_new_session=True,
        )

    return spawn


class WorkerProcess:
    """A local worker at an address, over any number of restarts.

    Attributes:
        name: Name of the worker.
        address: The address that it listens on.
    """

    def __init__(self, name: str, address: str, spawn: Spawn, *, hang_timeout: float) -> None:
        """Prepares the worker, which `supervise` or `start` starts.

        Args:
            name: Name of the worker.
            address: The address that it listens on.
            spawn: Starts a process of the worker.
            hang_timeout: Seconds of silence after which its process is killed; longer than any
                silence of a healthy worker.
        """
        self.name = name
        self.address = address
        self._spawn = spawn
        self._hang_timeout = hang_timeout
        # Checks since its last message; None before the first, because loading models takes time.
        self._silent_checks: int | None = None
        self._process: Process | None = None

    def record_message(self) -> None:
        """Records that the worker has sent something, so it is alive."""
        self._silent_checks = 0

    async def start(self, *options: str) -> None:
        """Starts a process.

        Args:
            options: Additional options.

        Raises:
            OSError: The system cannot start another process.
        """
        self._silent_checks = None
        self._process = await self._spawn(options)
        log.info("worker started", worker=self.name, pid=self._process.pid)

    async def supervise(self) -> None:
        """Keeps the worker running until cancelled; `stop` then ends it.

        Raises:
            StartupError: The first process reports that its configuration is invalid.
        """
        loop = asyncio.get_running_loop()
        backoff, first = FIRST_BACKOFF, self._process is None
        if first:
            backoff = await self._start_at_last(backoff)
        while True:
            started = loop.time()
            code = await self.ended()
            # Later, other requests depend on the worker, and a problem with its files may pass.
            if code == EXIT_CONFIG and first:
                raise StartupError(f"{self.name} could not start; see its message above")
            first = False
            backoff = FIRST_BACKOFF if loop.time() - started > STABLE else backoff
            reason = reason_of_end(code)
            log.error("worker died", worker=self.name, reason=reason, restart_seconds=backoff)
            await asyncio.sleep(backoff)
            backoff = await self._start_at_last(min(2 * backoff, LAST_BACKOFF))

    async def _start_at_last(self, backoff: float) -> float:
        """Starts a process as soon as the system can; returns the next back-off."""
        while True:
            try:
                await self.start()
            except OSError as error:
                reason = str(error)
            else:
                return backoff
            log.error("worker not started", worker=self.name, reason=reason, retry_seconds=backoff)
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, LAST_BACKOFF)

    async def ended(self) -> int:
        """Waits for the started process to end and returns its exit code.

        Kills the process if it is silent for too long. Silence is counted in checks, so that a
        pause of this process is not taken for silence of the worker.
        """
        process = self._started()
        while True:
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(process.wait(), self._hang_timeout / CHECKS)
            if self._silent_checks is None:
                continue
            self._silent_checks += 1
            if self._silent_checks > CHECKS:
                log.error("worker hung", worker=self.name, silent_seconds=self._hang_timeout)
                process.kill()
                return await process.wait()

    def _started(self) -> Process:
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process

    async def stop(self, grace: float) -> None:
        """Stops the worker: asks it to finish its runs, and kills it after `grace` seconds."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), grace)
            return
        log.warning("worker killed", worker=self.name, grace_seconds=grace)
        process.kill()
        await process.wait()


def reason_of_end(code: int) -> str:
    """Explains an exit code to people."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        # Most real-time signals have no name.
        return f"signal {-code}"

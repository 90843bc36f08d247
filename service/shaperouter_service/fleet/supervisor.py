"""A local worker's process: started, watched, restarted, and ended with its parent."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import structlog

from shaperouter_service.errors import EXIT_CONFIG, StartupError

log = structlog.get_logger(__name__)

# Seconds before a worker that has died is started again: doubled at each death, back to the first
# once one has lived for STABLE seconds.
FIRST_BACKOFF, LAST_BACKOFF, STABLE = 0.1, 30.0, 60.0

# Looks at a worker within the time that it may be silent for.
CHECKS = 10


class Process(Protocol):
    """A process of the operating system; see `asyncio.subprocess.Process`."""

    pid: int

    @property
    def returncode(self) -> int | None:
        """Its exit code; None while it runs."""

    async def wait(self) -> int:
        """Waits for its end, and returns its exit code."""

    def terminate(self) -> None:
        """Asks it to end."""

    def kill(self) -> None:
        """Ends it."""


# Starts a process of a worker, with options besides those that it always has.
Spawn: TypeAlias = Callable[[Sequence[str]], Awaitable[Process]]


def spawning(arguments: Sequence[str], environment: Mapping[str, str]) -> Spawn:
    """Says how processes of a worker are started.

    They are spawned, never forked, and hold the reading end of a pipe from here as their standard
    input: when this process is gone, even by SIGKILL, the pipe ends and so do they. Each is in a
    session of its own, so that Ctrl-C on a terminal reaches only us, who drain first.

    Args:
        arguments: Of `shaperouterd worker`.
        environment: Variables that they get besides ours.
    """

    async def spawn(options: Sequence[str]) -> Process:
        # Options of the worker are its arguments; our own variables are not meant for it.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("SHAPEROUTER_")}
        return await asyncio.create_subprocess_exec(
            sys.executable,
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
    """A local worker at an address, through any number of processes there.

    Attributes:
        name: Of the worker.
        address: Where it listens.
    """

    def __init__(self, name: str, address: str, spawn: Spawn, *, hang_timeout: float) -> None:
        """Prepares the worker; `supervise` or `start` starts it.

        Args:
            name: Of the worker.
            address: Where it listens.
            spawn: Starts a process of it.
            hang_timeout: Seconds of silence after which it is ended: longer than anything that is
                well says nothing for.
        """
        self.name = name
        self.address = address
        self._spawn = spawn
        self._hang_timeout = hang_timeout
        # Checks since it was heard from; None before it was, since models take time to be loaded.
        self._silent_checks: int | None = None
        self._process: Process | None = None

    def heard(self) -> None:
        """Tells that the worker is alive."""
        self._silent_checks = 0

    async def start(self, *options: str) -> None:
        """Starts a process.

        Args:
            options: That it gets besides those that it always has.

        Raises:
            OSError: The system has no room for it.
        """
        self._silent_checks = None
        self._process = await self._spawn(options)
        log.info("worker started", worker=self.name, pid=self._process.pid)

    async def supervise(self) -> None:
        """Keeps the worker running until cancelled, then leaves it to `stop`.

        Raises:
            StartupError: The first process that was started here says that it cannot work as
                configured.
        """
        loop = asyncio.get_running_loop()
        backoff, first = FIRST_BACKOFF, self._process is None
        if first:
            backoff = await self._start_at_last(backoff)
        while True:
            started = loop.time()
            code = await self.ended()
            # Later, others depend on us, and what is wrong with its files may pass.
            if code == EXIT_CONFIG and first:
                raise StartupError(f"{self.name} cannot start; its message stands above")
            first = False
            backoff = FIRST_BACKOFF if loop.time() - started > STABLE else backoff
            reason = reason_of_end(code)
            log.error("worker died", worker=self.name, reason=reason, restart_seconds=backoff)
            await asyncio.sleep(backoff)
            backoff = await self._start_at_last(min(2 * backoff, LAST_BACKOFF))

    async def _start_at_last(self, backoff: float) -> float:
        """Starts a process as soon as the system has room for it; returns the next back-off."""
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
        """Waits for the end of the process that was started, and returns its exit code.

        The end is made where it is silent for too long. Silence is told in checks, so that a pause
        of this process is not taken for the worker's.
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
        """Ends the worker: asks it to finish its runs, and kills it after `grace` seconds."""
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
    """Says for people what an exit code means."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"

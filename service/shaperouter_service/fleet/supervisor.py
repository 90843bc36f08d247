"""Local workers: processes that are started, watched, restarted, and ended with their parent."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence

import structlog

from shaperouter_service.errors import EXIT_CONFIG, StartupError

log = structlog.get_logger(__name__)

# Seconds before a worker that has died is started again: doubled at each death, back to the first
# once one has lived for STABLE seconds.
FIRST_BACKOFF, LAST_BACKOFF, STABLE = 0.1, 30.0, 60.0

# Looks at a worker within the time that it may be silent for.
CHECKS = 10


class WorkerProcess:
    """A local worker and its successors.

    The process is spawned, never forked, and holds the reading end of a pipe from here as its
    standard input: when this process is gone, even by SIGKILL, the pipe ends and so does the
    worker. It is in a session of its own, so that Ctrl-C on a terminal reaches only us, who drain
    first.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        hang_timeout: float,
    ) -> None:
        """Prepares the worker; `supervise` starts it.

        Args:
            name: For logs, stable over restarts.
            arguments: Of `shaperouterd worker`.
            environment: Variables that it gets besides ours.
            hang_timeout: Seconds of silence after which it is replaced: longer than anything that
                is well says nothing for.
        """
        self._name = name
        self._arguments = arguments
        self._environment = environment
        self._hang_timeout = hang_timeout
        # Checks since it was heard from; None before it was, since models take time to be loaded.
        self._silent_checks: int | None = None
        self._process: asyncio.subprocess.Process | None = None

    def heard(self) -> None:
        """Tells that the worker is alive."""
        self._silent_checks = 0

    async def supervise(self) -> None:
        """Keeps the worker running until cancelled, then leaves it to `stop`.

        Raises:
            StartupError: The first worker process says that it cannot work as configured.
        """
        loop = asyncio.get_running_loop()
        backoff, first = FIRST_BACKOFF, True
        # The worker's options are its arguments; our own variables are not meant for it.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("SHAPEROUTER_")}
        while True:
            started = loop.time()
            self._silent_checks = None
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "shaperouter_service",
                "worker",
                *self._arguments,
                stdin=asyncio.subprocess.PIPE,
                env={**inherited, **self._environment},
                start_new_session=True,
            )
            log.info("worker started", worker=self._name, pid=self._process.pid)
            code = await self._end_of(self._process)
            # Later, others depend on us, and what is wrong with its files may pass.
            if code == EXIT_CONFIG and first:
                raise StartupError(f"{self._name} cannot start; its message stands above")
            first = False
            backoff = FIRST_BACKOFF if loop.time() - started > STABLE else backoff
            reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            log.error("worker died", worker=self._name, reason=reason, restart_seconds=backoff)
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, LAST_BACKOFF)

    async def _end_of(self, process: asyncio.subprocess.Process) -> int:
        """Waits for its end, which may have to be made, and returns its exit code.

        Silence is told in checks, so that a pause of this process is not taken for the worker's.
        """
        while True:
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(process.wait(), self._hang_timeout / CHECKS)
            if self._silent_checks is None:
                continue
            self._silent_checks += 1
            if self._silent_checks > CHECKS:
                log.error("worker hung", worker=self._name, silent_seconds=self._hang_timeout)
                process.kill()
                return await process.wait()

    async def stop(self, grace: float) -> None:
        """Ends the worker: asks it to finish its runs, and kills it after `grace` seconds."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), grace)
            return
        log.warning("worker killed", worker=self._name, grace_seconds=grace)
        process.kill()
        await process.wait()

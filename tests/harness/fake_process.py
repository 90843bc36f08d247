"""Local workers whose processes are replaced by fake workers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.fake_worker import FakeWorker
from harness.router import wait_until
from shaperouter_service.supervision import WorkerProcess


class FakeProcess:
    """The process of a fake worker.

    SIGTERM makes it drain and end after its runs. SIGKILL ends it at once.
    """

    _pids = itertools.count(1)

    def __init__(self, worker: FakeWorker, options: Sequence[str]) -> None:
        self.pid = next(self._pids)
        self.worker = worker
        self.options = tuple(options)
        self.terminated = self.killed = False
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        self._ending: set[asyncio.Task[None]] = set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        self.terminated = True
        self._ending.add(asyncio.create_task(self._drain()))

    def kill(self) -> None:
        self.killed = True
        self._ending.add(asyncio.create_task(self.die(-9)))

    async def die(self, code: int = 1) -> None:
        """Ends without closing its connections."""
        await self.worker.kill()
        if self.returncode is None:
            self.returncode = code
            self._ended.set()

    async def _drain(self) -> None:
        await self.worker.drain()
        await wait_until(lambda: not self.worker.running)
        await self.die(0)


class FakeProcesses:
    """Starts fake processes instead of real ones, and keeps them.

    `at_birth` is called with each process before it serves. An error that it raises stands for the
    system's error of a failed start.
    """

    def __init__(self) -> None:
        self.started: list[FakeProcess] = []
        self.at_birth: Callable[[FakeProcess], None] = lambda process: None

    def make(self, name: str, address: str) -> WorkerProcess:
        """Creates a worker for `WorkerProcesses`."""
        fake = FakeWorker(name, Path(address.removeprefix("unix:")), ["tiny"])

        async def spawn(options: Sequence[str]) -> FakeProcess:
            process = FakeProcess(fake, options)
            self.at_birth(process)
            self.started.append(process)
            try:
                await fake.start()
            except BaseException:
                # asyncio also kills a process whose start is cancelled.
                await process.die()
                raise
            return process

        return WorkerProcess(name, address, spawn, hang_timeout=30.0)

    async def close(self) -> None:
        """Ends all processes."""
        for process in self.started:
            with contextlib.suppress(FileNotFoundError):
                await process.die()

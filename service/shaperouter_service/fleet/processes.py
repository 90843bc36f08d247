"""The processes of local workers: one of each, and for a while its successor beside it."""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from shaperouter_service.fleet.supervisor import WorkerProcess

# Of `shaperouterd worker`: it leaves alone what the record of traffic says, and will be told.
SUCCESSOR = "--successor"


class WorkerProcesses:
    """The processes of a service's own workers. Belongs to the event loop."""

    def __init__(
        self,
        names: Iterable[str],
        directory: Path,
        make: Callable[[str, str], WorkerProcess],
    ) -> None:
        """Prepares the workers; `supervise` starts them.

        Args:
            names: Of the workers.
            directory: Of the sockets that they listen on.
            make: Prepares a worker of a name at an address.
        """
        self._directory = directory
        self._make = make
        self._lives = itertools.count()
        self._processes: dict[str, WorkerProcess] = {}
        self._current = {name: self._add(name) for name in names}
        self._group = asyncio.TaskGroup()
        self._supervision: dict[WorkerProcess, asyncio.Task[None]] = {}

    @property
    def addresses(self) -> Sequence[str]:
        """Where they listen."""
        return list(self._processes)

    def heard(self, address: str) -> None:
        """Tells that the worker at an address is alive."""
        # What is told late is of no worker any more.
        if process := self._processes.get(address):
            process.heard()

    async def supervise(self) -> None:
        """Keeps the workers running until cancelled, then leaves them to `stop`.

        Raises:
            StartupError: A worker says at its first start that it cannot work as configured.
        """
        try:
            async with self._group:
                for process in self._current.values():
                    self._keep_running(process)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def start_successor(self, name: str) -> WorkerProcess:
        """Starts a process beside a worker's, which nobody starts again should it end.

        Raises:
            OSError: The system has no room for it.
        """
        successor = self._add(name)
        try:
            await successor.start(SUCCESSOR)
        except OSError:
            del self._processes[successor.address]
            raise
        return successor

    def take_over(self, successor: WorkerProcess) -> WorkerProcess:
        """Makes a successor the worker from now on; returns the one that it was, for `end`."""
        replaced = self._current[successor.name]
        self._current[successor.name] = successor
        self._keep_running(successor)
        self._supervision.pop(replaced).cancel()
        return replaced

    async def end(self, process: WorkerProcess, grace: float) -> None:
        """Ends a process that is not a worker's current one; see `WorkerProcess.stop`."""
        await process.stop(grace)
        del self._processes[process.address]

    async def stop(self, grace: float) -> None:
        """Ends all of them; see `WorkerProcess.stop`."""
        await asyncio.gather(*(process.stop(grace) for process in self._processes.values()))

    def _add(self, name: str) -> WorkerProcess:
        address = f"unix:{self._directory / f'{name}.{next(self._lives)}.sock'}"
        process = self._processes[address] = self._make(name, address)
        return process

    def _keep_running(self, process: WorkerProcess) -> None:
        self._supervision[process] = self._group.create_task(process.supervise())

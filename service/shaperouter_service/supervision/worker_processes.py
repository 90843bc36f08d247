"""The processes of local workers: one for each, and at times its successor."""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from shaperouter_service.supervision.worker_process import WorkerProcess

# Option of `shaperouterd worker`: do not compile by the record of traffic, but wait for requests.
SUCCESSOR = "--successor"


class WorkerProcesses:
    """The processes of a service's local workers. Only the event loop may use it."""

    def __init__(
        self,
        names: Iterable[str],
        directory: Path,
        make: Callable[[str, str], WorkerProcess],
    ) -> None:
        """Prepares the workers, which `supervise` starts.

        Args:
            names: Names of the workers.
            directory: Directory of the sockets that they listen on.
            make: Creates a worker with a name at an address.
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
        """Addresses of the workers."""
        return list(self._processes)

    def record_message(self, address: str) -> None:
        """Records that the worker at an address has sent something."""
        # A late report may belong to a worker that no longer exists.
        if process := self._processes.get(address):
            process.record_message()

    async def supervise(self) -> None:
        """Keeps the workers running until cancelled; `stop` then ends them.

        Raises:
            StartupError: A worker reports at its first start that its configuration is invalid.
        """
        try:
            async with self._group:
                for process in self._current.values():
                    self._keep_running(process)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def start_successor(self, name: str) -> WorkerProcess:
        """Starts a worker's successor, which is not restarted if it ends.

        Raises:
            OSError: The system cannot start another process.
        """
        successor = self._add(name)
        try:
            await successor.start(SUCCESSOR)
        except OSError:
            del self._processes[successor.address]
            raise
        return successor

    def take_over(self, successor: WorkerProcess) -> WorkerProcess:
        """Makes a successor the worker; returns the old process, for `end`."""
        replaced = self._current[successor.name]
        self._current[successor.name] = successor
        self._keep_running(successor)
        self._supervision.pop(replaced).cancel()
        return replaced

    async def end(self, process: WorkerProcess, grace: float) -> None:
        """Ends a process that is no longer a worker's current one; see `WorkerProcess.stop`."""
        await process.stop(grace)
        del self._processes[process.address]

    async def stop(self, grace: float) -> None:
        """Stops all workers; see `WorkerProcess.stop`."""
        await asyncio.gather(*(process.stop(grace) for process in self._processes.values()))

    def _add(self, name: str) -> WorkerProcess:
        address = f"unix:{self._directory / f'{name}.{next(self._lives)}.sock'}"
        process = self._processes[address] = self._make(name, address)
        return process

    def _keep_running(self, process: WorkerProcess) -> None:
        self._supervision[process] = self._group.create_task(process.supervise())

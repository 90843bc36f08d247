"""The serve role: a router, and local workers as its child processes."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from shaperouter_service.fleet import WorkerProcess, WorkerProcesses, spawning
from shaperouter_service.roles.router import RouterConfig, run_router
from shaperouter_service.roles.socket_directory import socket_directory
from shaperouter_service.rpc.heartbeat import HEARTBEAT, MISSED_HEARTBEATS

log = structlog.get_logger(__name__)

# Seconds that workers have to end once the router has: their requests are finished or given up.
WORKER_GRACE = 2.0


@dataclass(frozen=True, kw_only=True)
class LocalWorkers:
    """How local workers are started.

    Attributes:
        count: Number of them.
        arguments: Options they all get; their names and addresses come from here.
        gpus: That they share out, as CUDA_VISIBLE_DEVICES names them; none on a CPU.
        hang_timeout: Seconds after which a call of a graph has hung.
    """

    count: int
    arguments: tuple[str, ...]
    gpus: Sequence[str]
    hang_timeout: float

    @property
    def silence(self) -> float:
        """Seconds of silence after which one is replaced.

        However soon a call counts as hung, a worker without one speaks only at each heartbeat.
        """
        return max(self.hang_timeout, MISSED_HEARTBEATS * HEARTBEAT)

    def environment(self, index: int) -> dict[str, str]:
        """What is set for a worker: it sees one GPU alone, its device 0."""
        if not self.gpus:
            return {}
        return {"CUDA_VISIBLE_DEVICES": self.gpus[index % len(self.gpus)]}


async def run_serve(config: RouterConfig, workers: LocalWorkers) -> None:
    """Serves until SIGTERM or SIGINT; no worker outlives it.

    Raises:
        StartupError: A port, a model or an option is unusable.
    """
    names = {f"worker-{index}": index for index in range(workers.count)}
    with socket_directory() as directory:

        def worker(name: str, address: str) -> WorkerProcess:
            arguments = [f"--name={name}", f"--listen={address}", *workers.arguments]
            spawn = spawning(arguments, workers.environment(names[name]))
            return WorkerProcess(name, address, spawn, hang_timeout=workers.silence)

        processes = WorkerProcesses(names, directory, worker)
        supervision = asyncio.create_task(processes.supervise())
        router = asyncio.create_task(run_router(config, processes.addresses, processes))
        try:
            # The router ends when it is told to; the supervisor only when a worker can't start.
            await asyncio.wait([router, supervision], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (router, supervision):
                task.cancel()
            results = await asyncio.gather(router, supervision, return_exceptions=True)
            await processes.stop(WORKER_GRACE)
        for result in results:
            if isinstance(result, Exception):
                raise result
        log.info("stopped")

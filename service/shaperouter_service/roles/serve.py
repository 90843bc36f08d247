"""The serve role: a router with local workers as child processes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from shaperouter_service.roles.lifecycle import stop_signal
from shaperouter_service.roles.router_config import RouterConfig
from shaperouter_service.roles.socket_directory import socket_directory
from shaperouter_service.rpc.heartbeat import HEARTBEAT, MISSED_HEARTBEATS
from shaperouter_service.supervision import WorkerProcess, WorkerProcesses, spawning

log = structlog.get_logger(__name__)

# Seconds that workers have to exit after the router has, when no request needs them any more.
WORKER_GRACE = 2.0


@dataclass(frozen=True, kw_only=True)
class LocalWorkers:
    """How local workers are started.

    Attributes:
        count: Number of workers.
        arguments: Options of all workers, without their names and addresses.
        gpus: GPUs to distribute, as CUDA_VISIBLE_DEVICES names them; empty on a CPU.
        hang_timeout: Seconds after which a graph's call counts as hung.
    """

    count: int
    arguments: tuple[str, ...]
    gpus: Sequence[str]
    hang_timeout: float

    @property
    def silence(self) -> float:
        """Seconds of silence after which a worker is replaced.

        At least the missed heartbeats, because an idle worker sends only heartbeats.
        """
        return max(self.hang_timeout, MISSED_HEARTBEATS * HEARTBEAT)

    def environment(self, index: int) -> dict[str, str]:
        """Environment variables of a worker, which sees a single GPU as device 0."""
        if not self.gpus:
            return {}
        return {"CUDA_VISIBLE_DEVICES": self.gpus[index % len(self.gpus)]}


async def run_serve(config: RouterConfig, workers: LocalWorkers) -> None:
    """Serves until SIGTERM or SIGINT, and ends all workers.

    Raises:
        StartupError: A port, a model or an option is unusable.
    """
    stop = stop_signal()
    names = {f"worker-{index}": index for index in range(workers.count)}
    with socket_directory() as directory:

        def worker(name: str, address: str) -> WorkerProcess:
            arguments = [f"--name={name}", f"--listen={address}", *workers.arguments]
            spawn = spawning(arguments, workers.environment(names[name]))
            return WorkerProcess(name, address, spawn, hang_timeout=workers.silence)

        processes = WorkerProcesses(names, directory, worker)
        supervision = asyncio.create_task(processes.supervise())
        router = asyncio.create_task(_run_router(config, processes, stop))
        try:
            # The router ends at a signal, the supervisor only if a worker cannot start.
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


async def _run_router(
    config: RouterConfig, processes: WorkerProcesses, stop: asyncio.Event
) -> None:
    """Runs the router.

    Raises:
        StartupError: A port, a model or an option is unusable.
    """
    # In a thread, so that the workers, which take longest to start, need not wait for it.
    run_router = await asyncio.to_thread(_import_router)
    await run_router(config, processes.addresses, processes, stop)


def _import_router() -> Callable[..., Awaitable[None]]:
    from shaperouter_service.roles.router import run_router

    return run_router

"""Worker addresses, given literally or as host names whose addresses change."""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Protocol, TypeAlias

import structlog

from shaperouter_service.rpc.addresses import split_address
from shaperouter_service.system.background import in_background, survive_errors

log = structlog.get_logger(__name__)

# Seconds between lookups of a name: the time-to-live of Kubernetes' answers.
RESOLVE_INTERVAL = 5.0

# Finds the IP addresses of a host, of either version.
#
# Raises:
#     OSError: The host has no address, or no name server can be reached.
Resolve: TypeAlias = Callable[[str], Awaitable[Collection[str]]]


class Following(Protocol):
    """An object that is informed of the workers' addresses."""

    def set_addresses(self, addresses: Collection[str]) -> None:
        """Takes all current addresses."""


async def resolve(host: str) -> Collection[str]:
    """Resolves a host with the system's resolver, in a thread; see `Resolve`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return {str(address[0]) for *_, address in found}


@contextlib.asynccontextmanager
async def discovered(
    fleet: Following, workers: Sequence[str], resolve: Resolve = resolve
) -> AsyncIterator[None]:
    """Keeps a fleet informed of its workers' addresses inside the context.

    Args:
        fleet: The object to inform.
        workers: HOST:PORT or unix:PATH. A host name means all addresses that it currently resolves
            to; while it cannot be resolved, its last addresses.
        resolve: Finds the addresses of a host name.

    Raises:
        StartupError: An address has neither form.
    """
    names = {worker: split_address(worker, option="worker") for worker in workers if _named(worker)}
    found: dict[str, Sequence[str]] = {
        worker: () if worker in names else (worker,) for worker in workers
    }

    @in_background
    async def following() -> None:
        unresolved: set[str] = set()
        while True:
            with survive_errors("discovery"):
                for worker, (host, port) in names.items():
                    try:
                        found[worker] = sorted(_joined(ip, port) for ip in await resolve(host))
                        unresolved.discard(worker)
                    # Python raises the second error for a host that is not a valid name.
                    except (OSError, UnicodeError) as error:
                        if worker not in unresolved:
                            log.warning("worker not resolved", worker=worker, reason=str(error))
                        unresolved.add(worker)
                tell()
            await asyncio.sleep(RESOLVE_INTERVAL)

    def tell() -> None:
        fleet.set_addresses(dict.fromkeys(one for all_of in found.values() for one in all_of))

    tell()
    async with following() if names else contextlib.nullcontext():
        yield


def _named(worker: str) -> bool:
    """Whether a worker's host is a name, and not an IP address or a gRPC scheme."""
    if worker.startswith(("unix:", "unix-abstract:")):
        return False
    host, _ = split_address(worker, option="worker")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False


def _joined(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"

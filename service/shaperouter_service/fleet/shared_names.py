"""Warnings about workers that share a name: only one of them gets requests."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

import structlog

from shaperouter_service.fleet.fleet import Fleet
from shaperouter_service.system.background import in_background, survive_errors

log = structlog.get_logger(__name__)

# Seconds after which two processes with one name count as two workers. While a worker is replaced,
# two processes have its name until the old one stops.
SETTLED = 30.0


@in_background
async def warning_of_shared_names(fleet: Fleet) -> None:
    """Logs inside the context which workers share a name, once for each name."""
    loop = asyncio.get_running_loop()
    since: dict[str, float] = {}
    warned: set[str] = set()
    async for _ in fleet.changes():
        with survive_errors("telling shared names"):
            shared = _shared_names(fleet)
            since = {name: since.get(name, loop.time()) for name in shared}
            warned &= shared.keys()
            for name, addresses in shared.items():
                if name not in warned and loop.time() - since[name] >= SETTLED:
                    warned.add(name)
                    log.warning(
                        "workers share a name: only one is given requests; set --name of each",
                        worker=name,
                        addresses=addresses,
                    )


def _shared_names(fleet: Fleet) -> Mapping[str, Sequence[str]]:
    """Addresses of the warm processes of each name that has several."""
    addresses = defaultdict(list)
    for worker, address in fleet.incarnations().items():
        view = fleet.catalog.view(worker)
        if view is not None and view.warm:
            addresses[worker.name].append(address)
    return {name: sorted(found) for name, found in addresses.items() if len(found) > 1}

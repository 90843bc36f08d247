"""Requests workers to compile the graphs that have become worth it."""

import asyncio
import time
from collections.abc import Sequence

import structlog

from shaperouter_service.errors import ServiceError
from shaperouter_service.fleet.fleet import Fleet
from shaperouter_service.routing.compile_policy import compile_requests
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.system.background import in_background, survive_errors

log = structlog.get_logger(__name__)

# Seconds between two checks for graphs worth compiling; short compared with a compilation.
INTERVAL = 0.5


@in_background
async def compiling(fleet: Fleet) -> None:
    """Follows the fleet inside the context and requests graphs that are worth compiling."""
    async for _ in fleet.changes():
        with survive_errors("compiling"):
            wanted = compile_requests(fleet.catalog.views().values(), time.monotonic())
            for worker, signatures in wanted.items():
                await _request(fleet, worker, signatures)
        await asyncio.sleep(INTERVAL)


async def _request(fleet: Fleet, worker: str, signatures: Sequence[Signature]) -> None:
    try:
        refused = await fleet.request_compile(worker, signatures)
    except ServiceError as error:
        # The next check requests it again while it is worth it.
        log.warning("worker could not be asked to compile", worker=worker, reason=str(error))
        return
    for signature in signatures:
        if signature in refused:
            log.debug(
                "graph refused", graph=str(signature), worker=worker, reason=refused[signature]
            )
        else:
            log.info("graph requested", graph=str(signature), worker=worker)

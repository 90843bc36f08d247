"""Having compiled what is worth it, on the worker it is worth it on."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence

import structlog

from shaperouter_service.errors import ServiceError
from shaperouter_service.fleet.fleet import Fleet
from shaperouter_service.fleet.rounds import one_round
from shaperouter_service.routing.policy import wishes
from shaperouter_service.routing.signatures import Signature

log = structlog.get_logger(__name__)

# Seconds between two looks at what has become worth compiling: short against a compilation.
INTERVAL = 0.5


@contextlib.asynccontextmanager
async def compiling(fleet: Fleet) -> AsyncIterator[None]:
    """Follows the fleet inside of the context and asks workers for graphs that are worth it."""
    task = asyncio.create_task(_follow(fleet))
    try:
        yield
    finally:
        task.cancel()


async def _follow(fleet: Fleet) -> None:
    async for _ in fleet.changes():
        with one_round("compiling"):
            wanted = wishes(fleet.catalog.views().values(), time.monotonic())
            for worker, signatures in wanted.items():
                await _ask(fleet, worker, signatures)
        await asyncio.sleep(INTERVAL)


async def _ask(fleet: Fleet, worker: str, signatures: Sequence[Signature]) -> None:
    try:
        refused = await fleet.want(worker, signatures)
    except ServiceError as error:
        # It will be asked again while it is worth it.
        log.warning("worker not asked for graphs", worker=worker, reason=str(error))
        return
    for signature in signatures:
        if signature in refused:
            log.debug("graph refused", graph=str(signature), worker=worker, why=refused[signature])
        else:
            log.info("graph wanted", graph=str(signature), worker=worker)

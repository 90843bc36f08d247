"""Takes back what a router has begun to load and, as it is gone, will not finish.

A router that loads a revision has all workers load it with a share of 0, and gives it its share
when they are ready. If the router dies meanwhile, nobody would ever free the revision.
"""

import asyncio
import contextlib
import time

from shaperouter_service.errors import OtherChangeError, StoppingError
from shaperouter_service.fleet import Fleet
from shaperouter_service.routing.deployments import Deployment, RevisionState
from shaperouter_service.serving.repository import Repository
from shaperouter_service.serving.rollout import RETURN_SECONDS
from shaperouter_service.system.background import in_background, survive_errors

# Seconds after which a load that no worker continues is taken back: longer than the router that
# loads waits for a worker that it has lost meanwhile, and nothing is urgent about it.
ABANDONED = RETURN_SECONDS + 10.0

# Seconds between two looks.
INTERVAL = 1.0


@in_background
async def taking_back_abandoned_loads(fleet: Fleet, repository: Repository) -> None:
    """Takes back abandoned loads inside the context; any router of a service may do it.

    Args:
        fleet: The workers.
        repository: Changes what they load. A name that it is changing is left alone.
    """
    # Deployments that look abandoned, and since when.
    unfinished: dict[Deployment, float] = {}
    while not fleet.changes_ended:
        await asyncio.sleep(INTERVAL)
        # The service is stopping: nothing is taken back any more.
        with survive_errors("taking back abandoned loads"), contextlib.suppress(StoppingError):
            now = time.monotonic()
            unfinished = {
                each: unfinished.get(each, now)
                for each in fleet.catalog.revisions.deployments()
                if _looks_abandoned(fleet, each)
            }
            for deployment, since in unfinished.items():
                if now >= since + ABANDONED:
                    with contextlib.suppress(OtherChangeError):
                        await repository.undo_load(deployment)


def _looks_abandoned(fleet: Fleet, deployment: Deployment) -> bool:
    """Whether workers keep a revision loaded that gets no requests, and that none loads now."""
    states = {
        report.state
        for revision in deployment.revisions
        if not revision.share
        for report in fleet.catalog.reports(revision.model)
    }
    return bool(states) and RevisionState.LOADING not in states

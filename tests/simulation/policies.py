"""Ways to choose a worker: the product's, and others to compare it with."""

import hashlib
import random
from collections.abc import Callable, Sequence

from shaperouter_service.routing.views import WorkerView

from .traffic import Request

# Chooses the workers that the product's decision may choose among.
Policy = Callable[[Request, Sequence[WorkerView], random.Random], Sequence[WorkerView]]

# A worker with more than this multiple of the mean load passes requests of its prefixes on, as
# consistent hashing with bounded loads does (Mirrokni, Thorup and Zadimoghaddam, 2018).
BOUND = 1.25


def shaperouter(
    request: Request, views: Sequence[WorkerView], rng: random.Random
) -> Sequence[WorkerView]:
    """The worker that is expected to end the request soonest."""
    return views


def at_random(
    request: Request, views: Sequence[WorkerView], rng: random.Random
) -> Sequence[WorkerView]:
    """Any worker."""
    return [rng.choice(views)]


def least_loaded(
    request: Request, views: Sequence[WorkerView], rng: random.Random
) -> Sequence[WorkerView]:
    """One of the workers with the fewest requests."""
    fewest = min(map(_requests, views))
    return [rng.choice([view for view in views if _requests(view) == fewest])]


def prefix_hash(
    request: Request, views: Sequence[WorkerView], rng: random.Random
) -> Sequence[WorkerView]:
    """The first worker in an order that the prompt's beginning gives, with bounded loads."""
    limit = BOUND * (sum(map(_requests, views)) + 1) / len(views)

    def score(view: WorkerView) -> bytes:
        return hashlib.blake2b(f"{view.name}\0{request.prefix}".encode(), digest_size=8).digest()

    ranked = sorted(views, key=score)
    return [next((view for view in ranked if _requests(view) < limit), ranked[0])]


POLICIES: dict[str, Policy] = {
    "Shaperouter": shaperouter,
    "least loaded": least_loaded,
    "prefix hash": prefix_hash,
    "random": at_random,
}


def _requests(view: WorkerView) -> int:
    return sum(lane.active_slots + lane.queued for lane in view.lanes.values())

"""The compile policy: which signatures are worth compiling, and on which worker.

A missing signature costs device time: larger graphs pad, or smaller ones run in turn. Because
demand changes from chunk to chunk, the policy counts how much a graph would have saved of
everything that it covers. Once the fleet's savings reach a share of the compile time, one worker
compiles the graph. Rendezvous hashing names it among the workers that would have saved time, so
that routers agree without sharing state, and requests of the shape already go there. Among graphs
that may serve the same requests, the best is compiled; the savings of the others then start at 0.
Another worker compiles it once the graph would have saved as much there alone, which happens only
if load spreads to that worker.
"""

from collections.abc import Iterable, Mapping, Sequence

from shaperouter_service.routing.rendezvous import named
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import GraphState
from shaperouter_service.routing.views import WorkerView

# Fraction of its compile time that a signature's absence must have cost. By the ski-rental
# argument, 1 would never be worse than twice the optimum in hindsight. A smaller value is better
# here, because requests wait for the device and nobody waits for the compile threads.
SAVINGS_THRESHOLD = 0.5

# Maximum fraction of a worker's graphs, without the first ones that every worker has room for, that
# its successor makes at its start. A successor that frees hardly any room would soon be exhausted,
# too.
SUCCESSOR_SHARE = 0.75


def compile_requests(
    workers: Iterable[WorkerView], now: float
) -> Mapping[str, Sequence[Signature]]:
    """The signatures that each worker should compile now, in order of priority.

    Equal inputs give equal results. A signature that is on its way is not returned again.

    Args:
        workers: The fleet.
        now: The time on the monotonic clock of the views, in seconds.
    """
    fleet = {worker.name: worker for worker in workers}
    saving: dict[Signature, dict[str, float]] = {}
    for worker in fleet.values():
        for signature, graph in worker.graphs.items():
            if graph.state is not GraphState.READY and graph.would_save_seconds > 0:
                saving.setdefault(signature, {})[worker.name] = graph.would_save_seconds
    found: dict[str, list[tuple[float, Signature]]] = {}
    for signature, by_worker in saving.items():
        for name, seconds in _workers_to_compile(signature, by_worker, fleet, now):
            found.setdefault(name, []).append((-seconds, signature))
    best = {name: _best(fleet[name], ranked) for name, ranked in sorted(found.items())}
    return {name: signatures for name, signatures in best.items() if signatures}


def _best(worker: WorkerView, found: Iterable[tuple[float, Signature]]) -> list[Signature]:
    """The best of the signatures that may serve the same requests; none while one is on its way.

    Args:
        worker: The worker that compiles them, up to the room it has.
        found: The signatures, each with the time that it would have saved, negated.
    """
    taken = {
        signature.lattice for signature, graph in worker.graphs.items() if graph.state.on_the_way
    }
    best = []
    for _, signature in sorted(found):
        if signature.lattice not in taken:
            taken.add(signature.lattice)
            best.append(signature)
    return best[: worker.room]


def successor_graphs(worker: WorkerView) -> Sequence[Signature]:
    """Graphs that a fresh process in place of a worker should make, in order of priority.

    A compiled graph is never freed, so a worker whose budget is spent can only be replaced. Its
    successor makes the graphs that are worth their cost and those that the worker had no room for,
    as many of the best as leave some room.

    Returns:
        The graphs; none if the new ones among them are worth no more than those left behind.
    """
    if not worker.exhausted:
        return []
    first = {
        *(graph for model, ladders in worker.ladders.items() for graph in ladders.first(model)),
        *(ladders.first(model) for model, ladders in worker.calls.items()),
    }
    made = {
        signature
        for signature, graph in worker.graphs.items()
        if graph.state is GraphState.READY or graph.state.on_the_way
    }
    priority = {}
    for signature, graph in worker.graphs.items():
        seconds = graph.served_seconds if signature in made else graph.missed_seconds
        if seconds >= SAVINGS_THRESHOLD * worker.costs.compile_seconds(signature):
            priority[signature] = seconds
    ranked = sorted(priority, key=lambda signature: (-priority[signature], signature))
    # Count the graphs made instead of using the limit: memory may have run out before it.
    max_kept = int(SUCCESSOR_SHARE * len(made - first))
    left_out = set([signature for signature in ranked if signature not in first][max_kept:])
    kept = [signature for signature in ranked if signature not in left_out]
    gained = sum(priority[signature] for signature in kept if signature not in made)
    lost = sum(priority[signature] for signature in left_out & made)
    return kept if gained > lost else []


def _workers_to_compile(
    signature: Signature,
    saving: Mapping[str, float],
    fleet: Mapping[str, WorkerView],
    now: float,
) -> Iterable[tuple[str, float]]:
    """The workers that should compile a signature, with the savings that justify it."""
    able = [worker for worker in fleet.values() if worker.compiles and worker.has(signature.model)]
    if any(worker.state(signature).on_the_way for worker in able):
        return
    if not any(worker.state(signature) is GraphState.READY for worker in able):
        able = [worker for worker in able if _may_try(worker, signature, now)]
        if not able:
            return
        # If none of them can compile it, another worker does.
        names = [worker.name for worker in able]
        name = named(signature, [name for name in names if name in saving] or names)
        seconds = sum(saving.values())
        if seconds >= SAVINGS_THRESHOLD * fleet[name].costs.compile_seconds(signature):
            yield name, seconds
        return
    for worker in able:
        seconds = saving.get(worker.name, 0.0)
        if _may_try(worker, signature, now) and (
            seconds >= SAVINGS_THRESHOLD * worker.costs.compile_seconds(signature)
        ):
            yield worker.name, seconds


def _may_try(worker: WorkerView, signature: Signature, now: float) -> bool:
    if worker.room <= 0:
        return False
    graph = worker.graphs.get(signature)
    if graph is None or graph.state is GraphState.COLD:
        return True
    return graph.state is GraphState.FAILED and now >= graph.retry_at

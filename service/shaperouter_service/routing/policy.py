"""What is worth compiling where.

A signature's absence costs device time: larger graphs pad, or smaller ones run in turn. What is
asked for changes from chunk to chunk, so what counts is how much a graph would have saved of all
that it covers. Once that is a share of what compiling takes, for the fleet, one worker compiles it:
of those that would have saved, the one that rendezvous hashing names, so that routers which share
nothing agree, and where requests of the shape go anyway. Of graphs that may serve the same requests
the best is compiled, and what the others would save is counted anew from then on. Another worker
follows when it would have saved as much by itself, which it only does where load spreads to it.
"""

from collections.abc import Iterable, Mapping, Sequence

from shaperouter_service.routing.rendezvous import named
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.views import GraphState, WorkerView

# Of its compile time, what a signature's absence must have cost. By the ski-rental argument 1 would
# never do worse than twice the best that hindsight could; less is better here, since requests wait
# for the device and nobody waits for the compile threads.
WORTH = 0.5

# Of the graphs that a worker has, those left out that every worker has a place for, as many as its
# successor begins with at most: one that frees hardly any room would soon be where this one is.
FRESH = 0.75


def wishes(workers: Iterable[WorkerView], now: float) -> Mapping[str, Sequence[Signature]]:
    """What each worker is to compile now, in order of worth.

    Equal inputs give equal wishes, and a wish that was granted is not made again.

    Args:
        workers: The fleet.
        now: On the monotonic clock that the views were made by, in seconds.
    """
    fleet = {worker.name: worker for worker in workers}
    saving: dict[Signature, dict[str, float]] = {}
    for worker in fleet.values():
        for signature, graph in worker.graphs.items():
            if graph.state is not GraphState.READY and graph.would_save_seconds > 0:
                saving.setdefault(signature, {})[worker.name] = graph.would_save_seconds
    worth: dict[str, list[tuple[float, Signature]]] = {}
    for signature, by_worker in saving.items():
        for name, seconds in _wanted_on(signature, by_worker, fleet, now):
            worth.setdefault(name, []).append((-seconds, signature))
    best = {name: _best(fleet[name], found) for name, found in sorted(worth.items())}
    return {name: signatures for name, signatures in best.items() if signatures}


def _best(worker: WorkerView, found: Iterable[tuple[float, Signature]]) -> list[Signature]:
    """Of signatures that may serve the same requests the best, and none while one is on the way.

    Args:
        worker: That is to compile them, as many as it has room for.
        found: They, each after what it would have saved, negated.
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
    """What a fresh process in place of a worker should make, in order of worth.

    A compiled graph is never freed, so a worker whose budget is spent can only begin anew: with the
    graphs that earn what they cost, and those that it had no room for; of these, as many of the
    best as leave some room.

    Returns:
        The graphs; none where the new ones among them are worth no more than what would be left
        behind.
    """
    if not worker.exhausted:
        return []
    first = {
        signature for model, ladders in worker.ladders.items() for signature in ladders.first(model)
    }
    made = {
        signature
        for signature, graph in worker.graphs.items()
        if graph.state is GraphState.READY or graph.state.on_the_way
    }
    worth = {}
    for signature, graph in worker.graphs.items():
        seconds = graph.served_seconds if signature in made else graph.missed_seconds
        if seconds >= WORTH * worker.costs.compile_seconds(signature):
            worth[signature] = seconds
    ranked = sorted(worth, key=lambda signature: (-worth[signature], signature))
    # By what was made and not by the limit, since memory may have been spent before.
    most = int(FRESH * len(made - first))
    left_out = set([signature for signature in ranked if signature not in first][most:])
    kept = [signature for signature in ranked if signature not in left_out]
    gained = sum(worth[signature] for signature in kept if signature not in made)
    lost = sum(worth[signature] for signature in left_out & made)
    return kept if gained > lost else []


def _wanted_on(
    signature: Signature,
    saving: Mapping[str, float],
    fleet: Mapping[str, WorkerView],
    now: float,
) -> Iterable[tuple[str, float]]:
    """The workers that are to compile a signature, with what it would have saved them, or all."""
    able = [
        worker for worker in fleet.values() if worker.compiles and signature.model in worker.ladders
    ]
    if any(worker.state(signature).on_the_way for worker in able):
        return
    if not any(worker.state(signature) is GraphState.READY for worker in able):
        able = [worker for worker in able if _may_try(worker, signature, now)]
        if not able:
            return
        # Where none of them can, some other worker makes up for them.
        names = [worker.name for worker in able]
        name = named(signature, [name for name in names if name in saving] or names)
        seconds = sum(saving.values())
        if seconds >= WORTH * fleet[name].costs.compile_seconds(signature):
            yield name, seconds
        return
    for worker in able:
        seconds = saving.get(worker.name, 0.0)
        if _may_try(worker, signature, now) and (
            seconds >= WORTH * worker.costs.compile_seconds(signature)
        ):
            yield worker.name, seconds


def _may_try(worker: WorkerView, signature: Signature, now: float) -> bool:
    graph = worker.graphs.get(signature)
    if graph is None or graph.state is GraphState.COLD:
        return worker.room > 0
    return graph.state is GraphState.FAILED and now >= graph.retry_at

"""Measurements of a part: one contestant computes at a time, while the others wait.

In its turn, a contestant is called twice, and the second call is timed.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from generation.workloads import NEW_TOKENS, Workload

from common.conditions import conditions
from common.paths import THREADS
from common.processes import PeerError, PeerProcess
from common.tables import Spread
from common.terminal import Tell

from .formats import path_of, prepare
from .parts import Entry, Part

# After an answer, threads of a library may spin for a while before they sleep.
PAUSE = 0.3


@dataclass(kw_only=True)
class Measured:
    """The figures of a part, by workload and contestant.

    Attributes:
        conditions: Machine and time of the measurement.
        rounds: Number of rounds.
        seconds: Times of the calls, one a round; None where the contestant did not take part.
        equal: Sequences of the first call that at least half of the other contestants make, too.
        versions: Packages of each contestant.
        failures: Reasons of failures, by contestant.
    """

    conditions: dict[str, Any]
    rounds: int
    seconds: dict[str, dict[str, list[float | None]]] = field(default_factory=dict)
    equal: dict[str, dict[str, int]] = field(default_factory=dict)
    versions: dict[str, Mapping[str, str]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def spread(self, workload: Workload, entry: Entry) -> Spread | None:
        """The times of a contestant."""
        times = self.seconds.get(workload.name, {}).get(entry.label, [])
        known = [seconds for seconds in times if seconds is not None]
        return Spread.of(known) if known else None

    def ratios(self, workload: Workload, entry: Entry, other: Entry) -> Spread | None:
        """The ratios of a contestant's times to another's, round by round."""
        times = self.seconds.get(workload.name, {})
        pairs = zip(times.get(entry.label, []), times.get(other.label, []), strict=False)
        found = [a / b for a, b in pairs if a is not None and b is not None]
        return Spread.of(found) if found else None


def measure(part: Part, rounds: int, tell: Tell) -> Measured:
    """Starts and warms up all contestants, then calls them in turn, round after round."""
    found = Measured(conditions=conditions(), rounds=rounds)
    peers: dict[str, PeerProcess] = {}
    started = time.monotonic()
    with ExitStack() as stack:
        for entry in part.entries:
            with _noting(found, entry):
                tell(f"{part.title}: loading {entry.label}")
                prepare(part.shape, entry.format)
                peers[entry.label] = stack.enter_context(_started(part, entry))
                found.versions[entry.label] = peers[entry.label].versions
        for workload in part.workloads:
            _warm_up(part, workload, peers, found, tell)
        for number in range(rounds):
            # The order changes, so that each contestant runs after every other one.
            first = number % len(part.entries)
            order = [*part.entries[first:], *part.entries[:first]]
            for workload in part.workloads:
                tell(f"{part.title}: round {number + 1} of {rounds}, {workload.label}")
                for entry in order:
                    if number % entry.every or entry.label in found.failures:
                        continue
                    time.sleep(PAUSE)
                    with _noting(found, entry):
                        # The first calls after a pause find their code and data in no cache of the
                        # processor, and in a virtual machine take twice as long.
                        _ask(peers[entry.label], workload)
                        seconds = _ask(peers[entry.label], workload)["seconds"]
                        found.seconds[workload.name][entry.label][number] = seconds
    found.conditions["minutes"] = round((time.monotonic() - started) / 60, 1)
    return found


def _warm_up(
    part: Part,
    workload: Workload,
    peers: Mapping[str, PeerProcess],
    found: Measured,
    tell: Tell,
) -> None:
    """Calls every contestant once: it compiles and allocates, and its tokens are compared."""
    made: dict[str, list[list[int]]] = {}
    for entry in part.entries:
        if entry.label in found.failures:
            continue
        tell(f"{part.title}: warming up {entry.label}, {workload.label}")
        with _noting(found, entry):
            made[entry.label] = _ask(peers[entry.label], workload)["token_ids"]
            times = found.seconds.setdefault(workload.name, {})
            times[entry.label] = [None] * found.rounds
    found.equal[workload.name] = {
        label: _equal(token_ids, [others for name, others in made.items() if name != label])
        for label, token_ids in made.items()
    }


def _equal(token_ids: list[list[int]], others: list[list[list[int]]]) -> int:
    """Counts the sequences that at least half of the others have made, too."""
    return sum(
        2 * sum(ids == other[row] for other in others) >= len(others)
        for row, ids in enumerate(token_ids)
    )


def _started(part: Part, entry: Entry) -> PeerProcess:
    label = entry.label.lower().replace(",", "").replace(" ", "-")
    return PeerProcess(
        name=f"families-{part.name}-{label}",
        environment=entry.environment,
        module=entry.module,
        arguments=[
            f"--model={path_of(part.shape, entry.format)}",
            f"--threads={THREADS}",
            *entry.options,
        ],
    )


def _ask(peer: PeerProcess, workload: Workload) -> dict[str, Any]:
    answer = peer.ask(
        {
            "task": "generate",
            "prompts": workload.prompts,
            "new_tokens": NEW_TOKENS,
            "options": workload.options,
        }
    )
    made = [len(token_ids) for token_ids in answer["token_ids"]]
    if made != [NEW_TOKENS] * len(workload.prompts):
        raise PeerError(f"made sequences of {made} tokens, not of {NEW_TOKENS}")
    return answer


@contextmanager
def _noting(found: Measured, entry: Entry) -> Iterator[None]:
    """Records a contestant's failure, and continues without it."""
    try:
        yield
    except PeerError as error:
        found.failures[entry.label] = str(error)

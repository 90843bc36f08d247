"""Measurements of generation: one contestant computes at a time, while the others wait."""

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from common.paths import THREADS
from common.processes import PeerError
from common.terminal import Tell

from .bandwidth import MemoryReader
from .contestants import ENGINE, REFERENCE, SERVICE, TRANSFORMERS_XLA, Entry
from .peers import Peer
from .result import Result
from .workloads import Workload, option_sets, service_option_sets

# After an answer, threads of a library may spin for a while before they sleep.
PAUSE = 0.3
# A warm-up ends when a call has traced nothing; concurrent requests may need a few.
MOST_WARM_UPS = 6
FRESH_REPEATS = 3
OPTION_SETS = 100
# Transformers traces and compiles for each set: a few show it, and new ones start within this time.
TRANSFORMERS_OPTION_SETS = 5
TRANSFORMERS_OPTION_SECONDS = 100.0


def measure_rounds(
    entries: Sequence[Entry], workloads: Sequence[Workload], result: Result, tell: Tell
) -> None:
    """Starts and warms up all contestants, then calls them in turn, round after round."""
    with ExitStack() as stack:
        peers = []
        for entry in entries:
            with _noting(result, entry, "start"):
                tell(f"loading {entry.label}")
                peers.append(stack.enter_context(Peer(entry)))
                result.versions[entry.name] = dict(peers[-1].versions)
        pairs = [
            (workload, peer)
            for workload in workloads
            for peer in _warm_up(workload, peers, result, tell)
        ]
        traces = {peer: _traces(peer, result) for peer in peers}
        reader = MemoryReader(THREADS)
        for number in range(result.rounds):
            time.sleep(PAUSE)
            result.bandwidth.append(reader.bytes_per_second())
            for workload in workloads:
                turn = [peer for runs, peer in pairs if runs is workload]
                # The order changes, so that each contestant runs after every other one.
                first = number % max(1, len(turn))
                for peer in turn[first:] + turn[:first]:
                    tell(
                        f"round {number + 1} of {result.rounds}: {workload.label}, "
                        f"{peer.entry.label}"
                    )
                    _take_turn(workload, peer, number, result)
        for peer in peers:
            result.traces_in_rounds[peer.entry.name] = _traces(peer, result) - traces[peer]


def measure_first_calls(workload: Workload, result: Result, tell: Tell) -> None:
    """Measures the first call of new processes of Shaperouter and Transformers on XLA, in turn."""
    for repeat in range(FRESH_REPEATS):
        for entry in (ENGINE, TRANSFORMERS_XLA):
            tell(f"first call {repeat + 1} of {FRESH_REPEATS}, {entry.label}")
            with _noting(result, entry, "first call"), Peer(entry) as peer:
                seconds = peer.generate(workload).seconds
                first = {"seconds": seconds, "graphs": peer.graphs()}
                result.fresh.setdefault(entry.name, []).append(first)


def measure_option_sets(workload: Workload, result: Result, tell: Tell) -> None:
    """Counts the traces of requests that differ only in their options."""
    for entry, sets, limit in (
        (SERVICE, service_option_sets(OPTION_SETS), float("inf")),
        (TRANSFORMERS_XLA, option_sets(TRANSFORMERS_OPTION_SETS), TRANSFORMERS_OPTION_SECONDS),
    ):
        with _noting(result, entry, "option sets"), Peer(entry) as peer:
            peer.generate(workload)
            before, started, seconds = peer.traces(), time.monotonic(), []
            for number, options in enumerate(sets):
                tell(f"option set {number + 1} of {len(sets)}, {entry.label}")
                seconds.append(
                    peer.generate(dataclasses.replace(workload, options=options)).seconds
                )
                if time.monotonic() - started > limit:
                    break
            result.option_sets[entry.name] = {
                "traces": peer.traces() - before,
                "seconds": seconds,
            }


def _warm_up(
    workload: Workload, peers: Sequence[Peer], result: Result, tell: Tell
) -> Iterator[Peer]:
    """Calls each contestant until it traces nothing new; returns those that work."""
    token_ids: dict[str, list[list[int]]] = {}
    for peer in peers:
        entry = peer.entry
        if workload.kind not in entry.kinds:
            continue
        with _noting(result, entry, workload.label):
            traces = peer.traces()
            for call in range(MOST_WARM_UPS):
                tell(f"warming up {entry.label}: {workload.label}")
                answer = peer.generate(workload)
                if call == 0:
                    result.first_calls[workload.name][entry.name] = answer.seconds
                    token_ids[entry.name] = answer.token_ids
                if traces == (traces := peer.traces()):
                    break
            result.seconds[workload.name][entry.name] = [None] * result.rounds
            result.device_seconds[workload.name][entry.name] = [None] * result.rounds
            yield peer
    _compare(workload, token_ids, result)


def _compare(workload: Workload, token_ids: Mapping[str, list[list[int]]], result: Result) -> None:
    """Counts the sequences of each contestant that equal the reference's."""
    reference = token_ids.get(REFERENCE.name)
    if reference is None:
        return
    for contestant, made in token_ids.items():
        equal = sum(own == right for own, right in zip(made, reference, strict=True))
        result.equal[workload.name][contestant] = equal


def _take_turn(workload: Workload, peer: Peer, number: int, result: Result) -> None:
    entry = peer.entry
    if number % entry.every:
        return
    time.sleep(PAUSE)
    with _noting(result, entry, workload.label):
        answer = peer.generate(workload)
        result.seconds[workload.name][entry.name][number] = answer.seconds
        result.device_seconds[workload.name][entry.name][number] = answer.device_seconds


def _traces(peer: Peer, result: Result) -> int:
    with _noting(result, peer.entry, "graphs"):
        return peer.traces()
    return 0


@contextmanager
def _noting(result: Result, entry: Entry, what: str) -> Iterator[None]:
    """Records a contestant's failure, and continues without it."""
    try:
        yield
    except PeerError as error:
        # Keep the first reason, which says more than the later ones.
        result.failures.setdefault(f"{entry.label}: {what}", str(error))

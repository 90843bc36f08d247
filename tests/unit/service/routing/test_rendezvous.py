"""Rendezvous hashing: which worker a signature belongs to."""

import dataclasses
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.rendezvous import named
from shaperouter_service.routing.signatures import GraphKind, Signature

SIGNATURES = st.builds(
    Signature,
    model=st.sampled_from(["gpt2", "demo"]),
    kind=st.sampled_from(GraphKind),
    beams=st.sampled_from([1, 2, 4, 8]),
    rows=st.integers(1, 64),
    length=st.integers(1, 8192),
)
WORKERS = st.lists(st.text(min_size=1), min_size=1, max_size=8, unique=True)


@given(SIGNATURES, WORKERS)
def test_a_signature_belongs_to_one_of_the_workers(
    signature: Signature, workers: list[str]
) -> None:
    assert named(signature, workers) in workers


@given(SIGNATURES, WORKERS, st.randoms())
def test_the_order_of_the_workers_does_not_matter(
    signature: Signature, workers: list[str], randomness: random.Random
) -> None:
    shuffled = randomness.sample(workers, len(workers))
    assert named(signature, shuffled) == named(signature, workers)


@given(SIGNATURES, WORKERS.filter(lambda workers: len(workers) > 1), st.data())
def test_a_worker_that_goes_moves_its_own_signatures_only(
    signature: Signature, workers: list[str], data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(workers))
    before = named(signature, workers)
    after = named(signature, [worker for worker in workers if worker != gone])
    assert before in (after, gone)


@given(SIGNATURES, WORKERS, st.text(min_size=1))
def test_a_worker_that_comes_takes_signatures_for_itself_only(
    signature: Signature, workers: list[str], new: str
) -> None:
    before = named(signature, workers)
    assert named(signature, {*workers, new}) in (before, new)


@pytest.mark.parametrize("count", [2, 3, 8])
def test_signatures_spread_evenly(count: int) -> None:
    workers = [f"worker-{index}" for index in range(count)]
    ladders = Ladders.default(max_length=4096, slots=64)
    signatures = [
        ladders.decode(f"model-{index}", rows=1, length=length, beams=lane.beams)
        for index in range(110)
        for lane in ladders.lanes
        for length in lane.decode_lengths.rungs
    ]
    share = len(signatures) / count
    counts = Counter(named(signature, workers) for signature in signatures)
    assert set(counts) == set(workers)
    # Of so many independent draws, four standard deviations are less than a fifth of the share.
    assert all(abs(taken - share) < 0.2 * share for taken in counts.values()), counts


def test_the_answer_is_that_of_any_other_process() -> None:
    # By b2sum: printf 'worker-0\0gpt2 128 beams 1' | b2sum -l 64, and so on; the highest wins.
    signatures = [
        Signature(model="gpt2", kind=GraphKind.DECODE, beams=1, rows=1, length=length)
        for length in (128, 512, 256)
    ]
    workers = ["worker-0", "worker-1", "worker-2"]
    assert [named(signature, workers) for signature in signatures] == [
        "worker-0",
        "worker-1",
        "worker-2",
    ]


@given(SIGNATURES, WORKERS, st.integers(1, 64), st.sampled_from(GraphKind))
def test_what_serves_requests_of_one_length_together_belongs_to_one_worker(
    signature: Signature, workers: list[str], rows: int, kind: GraphKind
) -> None:
    other = dataclasses.replace(signature, rows=rows, kind=kind)
    assert named(other, workers) == named(signature, workers)


def test_without_workers_there_is_no_answer() -> None:
    signature = Signature(model="gpt2", kind=GraphKind.PREFILL, beams=1, rows=1, length=16)
    with pytest.raises(ValueError, match="empty"):
        named(signature, [])

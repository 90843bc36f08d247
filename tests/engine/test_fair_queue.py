"""The queue of a lane: bounded, and fair between those who ask."""

from types import SimpleNamespace
from typing import Any

import pytest

from shaperouter_service.errors import QueueFullError
from shaperouter_service.worker.fair_queue import FairQueue


def run(client: str = "a", *, prompt: int = 1, tokens: int = 9) -> Any:
    return SimpleNamespace(
        client=client, token_ids=[1] * prompt, max_new_tokens=tokens, cancelled=False
    )


def filled(*runs: Any, limit: int = 100) -> FairQueue:
    queue = FairQueue("m", limit)
    for each in runs:
        queue.put(each)
    return queue


def drained(queue: FairQueue) -> list[Any]:
    order = []
    while queue:
        order.append(next(iter(queue)))
        queue.remove(order[-1])
    return order


def test_runs_of_one_client_leave_in_order_of_arrival() -> None:
    runs = [run(tokens=tokens) for tokens in (9, 2, 30)]
    assert drained(filled(*runs)) == runs


def test_a_newcomer_goes_before_the_rest_of_a_flood() -> None:
    flood, late = [run("flood") for _ in range(10)], run("late")
    order = drained(filled(*flood, late))
    assert order.index(late) == 1


def test_clients_take_turns_by_what_they_ask_for() -> None:
    large = [run("large", tokens=39) for _ in range(3)]
    small = [run("small", tokens=9) for _ in range(8)]
    order = [each.client for each in drained(filled(*large, *small))]
    # While one large run of 40 tokens is made, four small ones of 10 are.
    assert order[:6] == ["large", "small", "small", "small", "small", "large"]


def test_having_waited_gives_no_credit() -> None:
    """Who comes late does not get all at once what he did not ask for before."""
    queue = filled(*[run("early") for _ in range(20)])
    for _ in range(10):
        queue.remove(next(iter(queue)))
    for _ in range(10):
        queue.put(run("late"))
    assert [each.client for each in drained(queue)][:6].count("late") == 3


def test_a_full_queue_names_its_limit() -> None:
    queue = filled(run("a"), run("b"), limit=2)
    with pytest.raises(QueueFullError, match="limit 2 waiting"):
        queue.put(run("c"))


def test_a_client_cannot_take_the_room_of_others() -> None:
    queue = filled(*[run("a") for _ in range(5)], limit=10)
    with pytest.raises(QueueFullError, match="limit 5 waiting requests of one client"):
        queue.put(run("a"))
    queue.put(run("b"))
    assert len(queue) == 6


def test_what_is_dropped_is_gone() -> None:
    kept, dropped = run(), run()
    queue = filled(kept, dropped)
    (told,) = queue.drop(lambda each: each is dropped)
    assert told is dropped
    (left,) = queue
    assert left is kept

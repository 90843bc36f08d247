"""The queue of a lane: bounded, and fair between those who ask."""

from types import SimpleNamespace
from typing import Any

import pytest

from shaperouter_service.errors import QueueFullError
from shaperouter_service.worker.fair_queue import FairQueue
from shaperouter_service.worker.run import Phase


def run(client: str = "a", *, prompt: int = 1, tokens: int = 9, resumed: bool = False) -> Any:
    return SimpleNamespace(
        client=client,
        token_ids=[1] * prompt,
        max_new_tokens=tokens,
        resumed=resumed,
        generated=0,
        phase=Phase.QUEUED,
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
        queue.start(order[-1])
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
        queue.start(next(iter(queue)))
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


def started(queue: FairQueue, each: Any) -> Any:
    """A run that was put and got its slot."""
    queue.put(each)
    queue.start(each)
    each.phase = Phase.PREFILL
    return each


def ended(queue: FairQueue, each: Any, *, generated: int) -> None:
    """Ends a run after so many tokens."""
    each.generated, each.phase = generated, Phase.DECODE
    queue.end(each)


def turns(queue: FairQueue, *clients: str) -> list[str]:
    """Whose runs go in which order, if each of these asks for one now."""
    for client in clients:
        queue.put(run(client))
    return [each.client for each in drained(queue)]


def test_nobody_pays_for_runs_that_are_dropped() -> None:
    queue = filled(*[run("a", tokens=900) for _ in range(10)])
    queue.drop(lambda _: True)
    assert turns(queue, "a", "b") == ["a", "b"]


def test_what_a_run_did_not_use_is_paid_back_at_its_end() -> None:
    queue = filled()
    for _ in range(10):
        # Both make as many tokens, though one of them asks for more.
        modest, greedy = run("modest", tokens=10), run("greedy", tokens=1000)
        for each in (modest, greedy):
            ended(queue, started(queue, each), generated=10)
    assert turns(queue, *4 * ["greedy"], *4 * ["modest"]) == 4 * ["greedy", "modest"]


def test_what_was_used_stays_paid() -> None:
    queue = filled()
    # Time goes on with the others.
    started(queue, run("other", tokens=10))
    ended(queue, started(queue, run("a", tokens=1000)), generated=500)
    assert turns(queue, "a", "b") == ["b", "a"]


def test_a_run_that_is_cancelled_before_its_prompt_is_read_costs_nothing() -> None:
    queue = filled()
    queue.end(started(queue, run("a", prompt=500)))
    assert turns(queue, "a", "b") == ["a", "b"]


def test_a_resumed_run_waits_for_nobody_who_came_later_nor_for_its_clients_other_runs() -> None:
    others = [run("a") for _ in range(3)]
    queue, resumed = filled(*others), run("a", resumed=True)
    queue.put(resumed)
    queue.put(run("b"))
    assert drained(queue)[1] is resumed


def test_a_resumed_run_is_not_paid_for_again() -> None:
    queue = filled()
    ended(queue, started(queue, run("a", tokens=1000, resumed=True)), generated=10)
    assert turns(queue, "a", "b") == ["a", "b"]


def test_a_resumed_run_needs_no_room_in_its_clients_share_but_in_the_queue() -> None:
    queue = filled(*[run("a") for _ in range(2)], limit=4)
    for _ in range(2):
        queue.put(run("a", resumed=True))
    with pytest.raises(QueueFullError, match="limit 4 waiting"):
        queue.put(run("a", resumed=True))

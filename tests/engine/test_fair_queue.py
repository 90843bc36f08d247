"""The queue of a lane is bounded and fair between clients."""

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


def test_a_new_client_goes_before_the_rest_of_a_flood() -> None:
    flood, late = [run("flood") for _ in range(10)], run("late")
    order = drained(filled(*flood, late))
    assert order.index(late) == 1


def test_clients_take_turns_by_requested_tokens() -> None:
    large = [run("large", tokens=39) for _ in range(3)]
    small = [run("small", tokens=9) for _ in range(8)]
    order = [each.client for each in drained(filled(*large, *small))]
    # One large run of 40 tokens takes as long as four small ones of 10.
    assert order[:6] == ["large", "small", "small", "small", "small", "large"]


def test_idle_time_gives_no_credit() -> None:
    """A client that arrives late does not catch up on the time before."""
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


def test_a_client_cannot_fill_the_queue() -> None:
    queue = filled(*[run("a") for _ in range(5)], limit=10)
    with pytest.raises(QueueFullError, match="limit 5 waiting requests of one client"):
        queue.put(run("a"))
    queue.put(run("b"))
    assert len(queue) == 6


def test_dropped_runs_leave_the_queue() -> None:
    kept, dropped = run(), run()
    queue = filled(kept, dropped)
    (told,) = queue.drop(lambda each: each is dropped)
    assert told is dropped
    (left,) = queue
    assert left is kept


def started(queue: FairQueue, each: Any) -> Any:
    """A run that was queued and started."""
    queue.put(each)
    queue.start(each)
    each.phase = Phase.PREFILL
    return each


def started_next(queue: FairQueue) -> Any:
    """Starts the first queued run."""
    first = next(iter(queue))
    queue.start(first)
    first.phase = Phase.PREFILL
    return first


def ended(queue: FairQueue, each: Any, *, generated: int) -> None:
    """Ends a run after this many tokens."""
    each.generated, each.phase = generated, Phase.DECODE
    queue.end(each)


def turns(queue: FairQueue, *clients: str) -> list[str]:
    """The order of clients if each of these submits a run now."""
    for client in clients:
        queue.put(run(client))
    return [each.client for each in drained(queue)]


def test_dropped_runs_are_not_charged() -> None:
    queue = filled(*[run("a", tokens=900) for _ in range(10)])
    queue.drop(lambda _: True)
    assert turns(queue, "a", "b") == ["a", "b"]


def test_unused_tokens_are_refunded_when_a_run_ends() -> None:
    queue = filled()
    # The lane is never empty, which would end all debts.
    started(queue, run("other", tokens=1))
    for _ in range(10):
        # Both make as many tokens, though one of them asks for more.
        modest = started(queue, run("modest", tokens=10))
        greedy = started(queue, run("greedy", tokens=1000))
        for each in (modest, greedy):
            ended(queue, each, generated=10)
    assert turns(queue, *4 * ["greedy"], *4 * ["modest"]) == 4 * ["greedy", "modest"]


def test_used_tokens_are_not_refunded() -> None:
    queue = filled()
    # The runs of others advance the virtual time.
    started(queue, run("other", tokens=10))
    ended(queue, started(queue, run("a", tokens=1000)), generated=500)
    assert turns(queue, "a", "b") == ["b", "a"]


def test_new_clients_do_not_hold_up_a_client_that_has_used_something_forever() -> None:
    queue = filled()
    before, beside = started(queue, run("a", tokens=999)), started(queue, run("beside"))
    waiting = run("a")
    queue.put(waiting)
    ended(queue, before, generated=999)
    running = [beside]
    for index in range(1000):
        queue.put(run(f"client {index}"))
        first = next(iter(queue))
        if first is waiting:
            return
        running.append(started_next(queue))
        ended(queue, running.pop(0), generated=9)
    pytest.fail("1000 later clients went first")


def test_a_run_that_waits_for_its_graph_does_not_let_new_clients_hold_up_others() -> None:
    queue = filled()
    running = [started(queue, run("beside"))]
    before = [started(queue, run("stalled", tokens=99)), started(queue, run("a", tokens=999))]
    stalled, waiting = run("stalled"), run("a")
    queue.put(stalled)
    queue.put(waiting)
    for each in before:
        ended(queue, each, generated=each.max_new_tokens)
    for index in range(1000):
        queue.put(run(f"client {index}"))
        first = next(each for each in queue if each is not stalled)
        if first is waiting:
            return
        queue.start(first)
        running.append(first)
        ended(queue, running.pop(0), generated=9)
    pytest.fail("1000 later clients went first")


def test_a_client_that_comes_once_is_forgotten() -> None:
    queue = filled()
    running = [started(queue, run("client"))]
    for index in range(100):
        queue.put(run(f"client {index}"))
        running.append(started_next(queue))
        ended(queue, running.pop(0), generated=9)
    assert len(queue._ends) <= 3


def test_a_long_run_that_ends_puts_no_other_runs_of_its_client_before_a_new_client() -> None:
    queue = filled()
    long = started(queue, run("a", tokens=9999))
    for _ in range(3):
        queue.put(run("a"))
        started_next(queue)
    for _ in range(5):
        queue.put(run("a"))
    ended(queue, long, generated=9999)
    started_next(queue)
    assert turns(queue, "b")[0] == "b"


def test_an_empty_lane_ends_all_debts() -> None:
    queue = filled()
    other = started(queue, run("other", tokens=10))
    ended(queue, started(queue, run("a", tokens=1000)), generated=500)
    ended(queue, other, generated=10)
    assert turns(queue, "a", "b") == ["a", "b"]


def test_a_run_cancelled_before_its_prompt_is_read_costs_nothing() -> None:
    queue = filled()
    queue.end(started(queue, run("a", prompt=500)))
    assert turns(queue, "a", "b") == ["a", "b"]


def test_a_resumed_run_goes_before_later_runs_and_its_clients_other_runs() -> None:
    others = [run("a") for _ in range(3)]
    queue, resumed = filled(*others), run("a", resumed=True)
    queue.put(resumed)
    queue.put(run("b"))
    assert drained(queue)[1] is resumed


def test_a_resumed_run_is_not_charged_again() -> None:
    queue = filled()
    ended(queue, started(queue, run("a", tokens=1000, resumed=True)), generated=10)
    assert turns(queue, "a", "b") == ["a", "b"]


def test_the_queue_limits_resumed_runs_but_a_clients_share_does_not() -> None:
    queue = filled(*[run("a") for _ in range(2)], limit=4)
    for _ in range(2):
        queue.put(run("a", resumed=True))
    with pytest.raises(QueueFullError, match="limit 4 waiting"):
        queue.put(run("a", resumed=True))

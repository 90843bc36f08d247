"""The order of calls that wait: by client, and in parts."""

import pytest

from shaperouter_service.tensors.checking import Sizes
from shaperouter_service.worker.call import Call
from shaperouter_service.worker.call_queue import CallQueue


def call(client: str, rows: int) -> Call:
    return Call(
        request_id=client,
        client=client,
        inputs={},
        sizes=Sizes(rows=rows),
        outputs=(),
        emit=lambda _: None,
        arrived=0.0,
    )


@pytest.fixture
def queue() -> CallQueue:
    return CallQueue("m", limit=100)


def order(queue: CallQueue) -> list[str]:
    return [each.client for each in queue]


def test_clients_take_turns(queue: CallQueue) -> None:
    for client in ("a", "a", "b"):
        queue.put(call(client, 1))
    assert order(queue) == ["a", "b", "a"]


def test_a_call_in_parts_takes_turns_with_later_ones(queue: CallQueue) -> None:
    long, short = call("a", 1000), call("b", 8)
    queue.put(long)
    queue.computed(long, 8)
    queue.put(short)
    queue.computed(long, 8)
    assert order(queue) == ["b", "a"]


def test_new_clients_do_not_hold_up_a_call_in_parts_forever(queue: CallQueue) -> None:
    long = call("long", 100)
    queue.put(long)
    queue.computed(long, 8)
    for index in range(100):
        new = call(f"client {index}", 1)
        queue.put(new)
        first = next(iter(queue))
        if first is long:
            return
        queue.computed(first, 1)
        queue.drop(lambda each, first=first: each is first)
    pytest.fail("100 later clients went first")


def test_a_call_that_has_left_changes_nothing(queue: CallQueue) -> None:
    queue.put(call("a", 1))
    queue.computed(call("b", 1), 1)
    assert order(queue) == ["a"]


def test_a_call_that_is_cancelled_while_others_are_dropped_still_counts(queue: CallQueue) -> None:
    leaving, staying = call("a", 1), call("a", 1)
    queue.put(leaving)
    queue.put(staying)

    def unwanted(each: Call) -> bool:
        was_cancelled = each.cancelled
        # Its caller leaves just after it was asked about.
        each.cancelled = True
        return was_cancelled

    leaving.cancelled = True
    assert queue.drop(unwanted) == [leaving]
    assert queue.drop(unwanted) == [staying]
    assert len(queue) == 0
    # Half of the queue is free for the client again.
    for _ in range(50):
        queue.put(call("a", 1))

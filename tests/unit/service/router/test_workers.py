"""A router and its workers: which one is picked, and what happens when one is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc import StatusCode, aio

from shaperouter_service.errors import GraphFailedError, QueueFullError

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Until = Callable[[Callable[[], bool]], Awaitable[None]]
Detail = Callable[[aio.AioRpcError, type[Message]], Any]
RetrySeconds = Callable[[aio.AioRpcError], float]


# Picking a worker.


def test_the_least_busy_worker_is_picked(play: Play, until: Until) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        for worker in workers:
            worker.script.insert(0, worker.hold)
            await worker.make_first_graphs()
        await until(lambda: router.metric("graphs", state="ready") == 6)
        calls: list[Awaitable[object]] = []
        for _ in range(6):
            calls.append(router.generate())
            await until(lambda: sum(worker.running for worker in workers) == len(calls))
            running = [worker.running for worker in workers]
            assert max(running) - min(running) <= 1
        for worker in workers:
            worker.released.set()
        await asyncio.gather(*calls)

    play(scenario, workers=3)


def test_a_worker_is_free_again_when_its_run_was_cancelled(play: Play, until: Until) -> None:
    async def scenario(router: Router, first: FakeWorker, second: FakeWorker) -> None:
        for worker in (first, second):
            worker.script.insert(0, worker.hold)
            await worker.make_first_graphs()
        await until(lambda: router.metric("graphs", state="ready") == 4)
        calls = [router.generate(), router.generate()]
        await until(lambda: router.metric("slots", model="tiny", state="active") == 2)
        calls[0].cancel()
        # Waits until the router knows about the free slot, too.
        await until(lambda: router.metric("slots", model="tiny", state="active") == 1)
        calls.append(router.generate())
        await until(lambda: first.running == second.running == 1)

    play(scenario, workers=2)


def test_only_a_worker_that_has_the_model_is_picked(play: Play) -> None:
    async def scenario(router: Router, first: FakeWorker, second: FakeWorker) -> None:
        (first.models, second.models) = (first.models[:1], first.models[1:])
        await first.start()
        await second.start()
        workers = {
            model: (await router.generate(model=model)).completion.worker
            for model in ("large", "small")
        }
        assert workers == {"large": "worker-0", "small": "worker-1"}

    play(scenario, workers=2, models=("large", "small"), started=False)


# Waiting for a worker.


def test_a_request_waits_for_the_first_worker(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        call = router.generate(text="TensorFlow is")
        await until(lambda: router.metric("num_requests_waiting", model="tiny") == 1)
        await worker.start()
        assert (await call).completion.worker == "worker-0"

    play(scenario, started=False)


def test_a_request_that_names_no_model_is_counted_while_it_waits_for_workers(
    play: Play, until: Until
) -> None:
    # An autoscaler that has scaled to zero goes by this.
    async def scenario(router: Router, worker: FakeWorker) -> None:
        call = router.generate()
        await until(lambda: router.metric("num_requests_waiting", model="(unknown)") == 1)
        call.cancel()
        await until(lambda: router.metric("num_requests_waiting", model="(unknown)") == 0)

    play(scenario, started=False, models=("large", "small"))


def test_a_request_waits_for_a_worker_to_come_back(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await worker.kill()
        call = router.generate()
        await until(lambda: router.metric("num_requests_waiting", model="tiny") == 1)
        await worker.start()
        assert (await call).completion.worker == "worker-0"

    play(scenario)


@pytest.mark.usefixtures("wide_margins")
@pytest.mark.parametrize("known", [False, True], ids=["never seen", "seen before"])
def test_a_deadline_without_a_worker_is_told_with_the_reason(play: Play, known: bool) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        if known:
            await worker.start()
            await router.generate()
            await worker.kill()
        error = await router.error(router.generate(timeout=5.0))
        assert error.code() is StatusCode.DEADLINE_EXCEEDED
        assert "no worker could serve tiny" in str(error.details())
        why = "the workers that had loaded it were lost" if known else "the service is starting"
        assert why in str(error.details())

    play(scenario, started=False)


def test_a_deadline_without_a_worker_is_counted_and_nothing_waits_any_more(
    play: Play, until: Until
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        error = await router.error(router.generate(timeout=0.2))
        assert error.code() is StatusCode.DEADLINE_EXCEEDED
        await until(lambda: router.metric("num_requests_waiting", model="tiny") == 0)

    play(scenario, started=False)


def test_a_request_that_waits_for_a_worker_can_be_cancelled(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        call = router.generate()
        await until(lambda: router.metric("num_requests_waiting", model="tiny") == 1)
        call.cancel()
        await until(lambda: router.metric("num_requests_waiting", model="tiny") == 0)
        assert router.metric("requests_total", model="tiny", code="CANCELLED") == 1

    play(scenario, started=False)


# Errors of a worker.


def test_a_full_queue_is_passed_on_with_when_to_try_again(
    play: Play, detail: Detail, retry_seconds: RetrySeconds
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [QueueFullError("tiny", 256)]
        for call in (router.generate(), router.stream()):
            error = await router.error(call)
            assert error.code() is StatusCode.RESOURCE_EXHAUSTED
            assert error.details() == "queue of tiny is full: limit 256 waiting requests"
            assert retry_seconds(error) == 1.0
            assert detail(error, error_details_pb2.ErrorInfo).reason == "QUEUE_FULL"

    play(scenario)


def test_a_full_queue_is_told_once_every_worker_has_been_asked(play: Play) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        for worker in workers:
            worker.script = [QueueFullError("tiny", 256)]
        error = await router.error(router.generate())
        assert error.code() is StatusCode.RESOURCE_EXHAUSTED
        assert [len(worker.requests) for worker in workers] == [1, 1]

    play(scenario, workers=2)


def test_a_request_goes_to_a_worker_that_has_room_when_another_has_none(play: Play) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        workers[0].script = [QueueFullError("tiny", 256)]
        for _ in range(3):
            assert (await router.generate()).completion.worker == "worker-1"

    play(scenario, workers=2)


def test_a_graph_that_failed_is_passed_on_with_the_reason(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [worker.stall(), GraphFailedError("tiny prefill 1x16", "out of memory")]
        error = await router.error(router.stream())
        assert error.code() is StatusCode.INTERNAL
        assert "tiny prefill 1x16" in str(error.details())
        assert "out of memory" in str(error.details())

    play(scenario)


def test_a_reason_of_many_lines_still_reaches_the_caller(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        # XLA's error may contain a whole program.
        reason = "Error in the café: %10 = f32[]\n" * 1000
        worker.script = [GraphFailedError("tiny prefill 1x16", reason)]
        error = await router.error(router.generate())
        assert error.code() is StatusCode.INTERNAL
        assert "tiny prefill 1x16" in str(error.details())

    play(scenario)


def test_a_defect_of_a_worker_is_passed_on_without_its_secrets(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [worker.tokens(5), ZeroDivisionError("the password is 1234")]
        error = await router.error(router.stream())
        assert error.code() is StatusCode.INTERNAL
        assert "1234" not in str(error.details())

    play(scenario)


def test_the_worker_goes_on_after_its_error(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        good = worker.script
        for fault in (QueueFullError("tiny", 1), ZeroDivisionError("a defect")):
            worker.script = [fault]
            await router.error(router.generate())
        worker.script = good
        assert (await router.generate()).sequences[0].token_ids == [5, 7, 8]

    play(scenario)


# Counting them.


@pytest.mark.parametrize(("end", "reason"), [("kill", "lost"), ("drain", "draining")])
def test_workers_are_counted_and_so_is_why_they_are_not_there_any_more(
    play: Play, until: Until, end: str, reason: str
) -> None:
    async def scenario(router: Router, first: FakeWorker, _: FakeWorker) -> None:
        assert router.metric("workers") == 2
        await getattr(first, end)()
        await until(lambda: router.metric("workers") == 1)
        assert router.metric("workers_lost_total", reason=reason) == 1
        assert router.metric("workers_lost_total", reason="hung") == 0

    play(scenario, workers=2)


def test_losses_and_what_they_move_are_counted_from_zero(play: Play) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        for reason in ("lost", "hung", "draining"):
            for name, labels in (
                ("shaperouter_workers_lost_total", {"reason": reason}),
                ("shaperouter_runs_resumed_total", {"model": "tiny", "reason": reason}),
            ):
                assert router.registry.get_sample_value(name, labels) == 0

    play(scenario)

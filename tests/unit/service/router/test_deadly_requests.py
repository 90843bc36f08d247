"""A request that kills workers is distinguished from innocent ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from google.rpc import error_details_pb2
from grpc import StatusCode
from grpc_status import rpc_status

from harness.holding import TOKENS, busy, hold_after
from harness.logs import capture_logs
from harness.router import read_events
from shaperouter.v1 import generation_pb2, worker_pb2
from shaperouter_service.fleet.run_attempts import LOSSES_OF_CAUSES, LOSSES_OF_SUSPECTS

if TYPE_CHECKING:
    from harness.fake_events import Step
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Until = Callable[[Callable[[], bool]], Awaitable[None]]

LOSSES = LOSSES_OF_SUSPECTS + LOSSES_OF_CAUSES


def isolations(lines: list[Any]) -> int:
    return sum(line["event"] == "suspect isolated" for line in lines)


def test_a_request_that_workers_die_of_is_refused_as_the_cause(play: Play, until: Until) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(1, *workers)
        call = router.stream()
        await call.read()
        alive = list(workers)
        for lost in range(LOSSES):
            isolated = max(0, lost + 1 - LOSSES_OF_SUSPECTS)
            await until(lambda alive=alive: any(worker.running for worker in alive))
            await until(lambda isolated=isolated: isolations(lines) == isolated)
            killed, alive = busy(*alive)
            await killed.kill()
        error = await router.error(call)
        assert error.code() is StatusCode.INTERNAL
        status = rpc_status.from_call(error)
        assert status is not None
        info = error_details_pb2.ErrorInfo()
        assert status.details[0].Unpack(info)
        assert info.reason == "DEADLY_REQUEST"
        # Nothing suggests to try again.
        assert not any(each.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for each in status.details)
        assert ("grpc-retry-pushback-ms", "-1") in tuple(error.trailing_metadata())

        (line,) = (each for each in lines if each["event"] == "request refused: workers died of it")
        assert f"request {line['request_id']}:" in str(error.details())
        assert (line["worker"], line["tokens"]) == (killed.name, 1)
        assert router.metric("deadly_requests_total", model="tiny") == 1
        assert sum(len(worker.requests) for worker in workers) == LOSSES
        assert router.metric("num_requests_running", model="tiny") == 0

    with capture_logs() as lines:
        play(scenario, workers=LOSSES + 1)


def test_a_request_that_was_near_goes_on_however_often_its_worker_dies(
    play: Play, until: Until
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        hold_after(1, worker)
        # What runs beside it is never done.
        worker.isolates = False
        call = router.generate()
        for lost in range(2 * LOSSES):
            await until(lambda lost=lost: len(worker.requests) == lost + 1)
            await worker.kill()
            await worker.start()
        worker.released.set()
        assert (await call).sequences[0].token_ids == TOKENS
        assert router.metric("deadly_requests_total", model="tiny") == 0

    play(scenario)


def test_bystanders_of_a_request_that_workers_die_of_end_well(play: Play, until: Until) -> None:
    bystanders = 3

    async def scenario(router: Router, worker: FakeWorker) -> None:
        def script(request: worker_pb2.RunRequest) -> list[Step]:
            is_deadly = request.token_ids[0] == 2
            if request.suspect and not is_deadly:
                return [worker.tokens(*TOKENS), worker.completion()]
            return [worker.hold]

        worker.script_of = script
        calls = [router.generate() for _ in range(bystanders)]
        deadly = router.generate(token_ids=generation_pb2.TokenIds(ids=[2]))
        for _ in range(LOSSES_OF_SUSPECTS):
            await until(lambda: worker.running == bystanders + 1)
            await worker.kill()
            await worker.start()
        for response in await asyncio.gather(*calls):
            assert response.sequences[0].token_ids == TOKENS
        for lost in range(LOSSES_OF_CAUSES):
            await until(lambda lost=lost: isolations(lines) == bystanders + lost + 1)
            await worker.kill()
            await worker.start()
        assert (await router.error(deadly)).code() is StatusCode.INTERNAL

    with capture_logs() as lines:
        play(scenario)


def test_callers_hear_nothing_of_an_isolation(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        hold_after(0, worker)
        call = router.stream()
        for lost in range(LOSSES_OF_SUSPECTS):
            await until(lambda lost=lost: len(worker.requests) == lost + 1)
            await worker.kill()
            await worker.start()
        worker.released.set()
        events, _ = await read_events(call)
        assert {event.WhichOneof("event") for event in events} == {"delta"}
        assert isolations(lines) == 1

    with capture_logs() as lines:
        play(scenario)

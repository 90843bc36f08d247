"""Draining workers finish their running requests; waiting requests move to other workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from harness import fake_worker
from harness.holding import TOKENS, busy, hold_after, resumed
from harness.router import deltas, read_events
from shaperouter_service.errors import Code, RelayedError, StoppingError
from shaperouter_service.fleet.run_attempts import LOSSES_OF_CAUSES, LOSSES_OF_SUSPECTS

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

# More than a run is lost with before it is refused as the cause.
GIVEN_BACK = LOSSES_OF_SUSPECTS + LOSSES_OF_CAUSES + 1

Until = Callable[[Callable[[], bool]], Awaitable[None]]


async def draining_with_a_run(
    router: Router, workers: Sequence[FakeWorker], until: Until
) -> tuple[Any, Any, FakeWorker, FakeWorker]:
    """A stream after its first event, that event, its draining worker, and the other worker."""
    hold_after(1, *workers)
    call = router.stream()
    first = await call.read()
    draining, (other,) = busy(*workers)
    await draining.drain()
    await until(lambda: router.free_slots == fake_worker.SLOTS)
    other.released.set()
    return call, first, draining, other


def test_a_worker_that_drains_gets_nothing_new_and_ends_what_runs(play: Play, until: Until) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        call, first, draining, other = await draining_with_a_run(router, workers, until)
        for _ in range(3):
            assert (await router.generate()).completion.worker == other.name
        draining.released.set()
        rest, end = await read_events(call)
        assert end.completion.worker == draining.name
        assert [token for d in deltas([first, *rest]) for token in d.token_ids] == TOKENS

    play(scenario, workers=2)


def test_what_a_draining_worker_gives_back_goes_on_elsewhere_and_is_no_loss(
    play: Play, until: Until
) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        *draining, last = workers
        for worker in draining:
            worker.script = [worker.hold, StoppingError()]
        last.draining = True
        await last.change()
        await until(lambda: router.free_slots == len(draining) * fake_worker.SLOTS)
        call = router.generate()
        while draining:
            await until(lambda: any(worker.running for worker in draining))
            one, _ = busy(*draining)
            await one.drain()
            one.released.set()
            draining.remove(one)
        await last.kill()
        await last.start()
        assert (await call).sequences[0].token_ids == TOKENS
        assert resumed(router, "draining") >= GIVEN_BACK

    play(scenario, workers=GIVEN_BACK + 1)


def test_a_request_that_meets_a_worker_as_it_begins_to_drain_goes_elsewhere(play: Play) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        refusing, other = workers
        # The router has not been told yet.
        refusing.draining = True
        completions = [(await router.generate()).completion for _ in range(4)]
        assert {completion.worker for completion in completions} == {other.name}

    play(scenario, workers=2)


def test_a_request_that_meets_a_worker_in_the_moment_it_stops_goes_elsewhere_and_is_no_loss(
    play: Play,
) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        taken = (await router.generate()).completion.worker
        [stopping] = [worker for worker in workers if worker.name == taken]
        # gRPC's answer then, before the router knows that the worker drains.
        stopping.script = [RelayedError(Code.CANCELLED, "")]
        assert (await router.generate()).completion.worker != taken
        assert router.metric("workers_lost_total", reason="draining") > 0
        assert router.metric("workers_lost_total", reason="lost") == 0

    play(scenario, workers=2)


def test_what_a_draining_worker_cuts_off_at_the_end_of_its_grace_goes_on_elsewhere(
    play: Play, until: Until
) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        call, first, draining, _ = await draining_with_a_run(router, workers, until)
        await draining.stop()
        rest, _ = await read_events(call)
        assert [token for d in deltas([first, *rest]) for token in d.token_ids] == TOKENS
        assert resumed(router, "draining") == 1

    play(scenario, workers=2)

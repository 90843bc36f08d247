"""The error of a passed deadline names what the request waited for, whatever the worker does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from grpc import StatusCode

from harness.holding import hold_after

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

pytestmark = pytest.mark.usefixtures("wide_margins")


async def told(router: Router) -> str:
    error = await router.error(router.generate(timeout=5.0))
    assert error.code() is StatusCode.DEADLINE_EXCEEDED
    return str(error.details())


@pytest.mark.parametrize("made", [0, 2])
def test_a_worker_that_has_no_time(play: Play, made: int) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        hold_after(made, worker)
        waited = f"for {worker.name}, in its queue or for its device ({made} tokens were made)"
        assert (await told(router)).endswith(f"the request waited {waited}")

    play(scenario)


def test_a_compilation(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [worker.stall(), worker.hold]
        assert (await told(router)).endswith(
            "the request waited for tiny prefill 1x16 to be compiled"
        )

    play(scenario)


def test_a_worker_that_starts(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.warm = False
        await worker.change()
        await router.wait_for_health("readiness", 2)
        worker.script = [worker.hold]
        assert (await told(router)).endswith(
            "the request waited for its first graphs to be compiled, while its worker was still "
            "starting"
        )

    play(scenario)

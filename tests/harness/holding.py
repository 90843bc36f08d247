"""Workers that pause in the middle of a run, so that a test can end them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness import fake_worker

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Router

TOKENS = [5, 7, 8]


def hold_after(cut: int, *workers: FakeWorker) -> None:
    """Makes workers send TOKENS one by one, and pause after the first `cut`."""
    for worker in workers:
        steps: list[fake_worker.Step] = [worker.tokens(token) for token in TOKENS]
        worker.script = [*steps[:cut], worker.hold, *steps[cut:], worker.completion()]


def busy(*workers: FakeWorker) -> tuple[FakeWorker, list[FakeWorker]]:
    """The worker with a run, and the others."""
    (one,) = (worker for worker in workers if worker.running)
    return one, [worker for worker in workers if worker is not one]


def resumed(router: Router, reason: str) -> float:
    return router.metric("runs_resumed_total", model="tiny", reason=reason)

"""Workers are lost, fall silent or drain: their runs go on elsewhere, and callers see no break."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
from grpc import StatusCode, aio
from structlog.testing import capture_logs

from harness import fake_worker
from harness.router import deltas, read_events
from shaperouter.v1 import generation_pb2
from shaperouter_service.errors import QueueFullError, StoppingError
from shaperouter_service.fleet import fleet, link
from shaperouter_service.rpc.heartbeat import MISSED_HEARTBEATS

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Until = Callable[[Callable[[], bool]], Awaitable[None]]
RetrySeconds = Callable[[aio.AioRpcError], float]

TOKENS = [5, 7, 8]


def options(**fields: Any) -> generation_pb2.GenerationOptions:
    return generation_pb2.GenerationOptions(**fields)


def hold_after(cut: int, *workers: FakeWorker) -> None:
    """Has workers give TOKENS one by one, and hold before the one that follows the first `cut`."""
    for worker in workers:
        steps: list[fake_worker.Step] = [worker.tokens(token) for token in TOKENS]
        worker.script = [*steps[:cut], worker.hold, *steps[cut:], worker.completion()]


def busy(*workers: FakeWorker) -> tuple[FakeWorker, list[FakeWorker]]:
    """The worker that runs something, and the others."""
    (one,) = (worker for worker in workers if worker.running)
    return one, [worker for worker in workers if worker is not one]


def resumed(router: Router, reason: str) -> float:
    return router.metric("runs_resumed_total", model="tiny", reason=reason)


# Going on elsewhere.


@pytest.mark.parametrize("cut", range(len(TOKENS) + 1))
def test_a_stream_goes_on_after_any_number_of_tokens(play: Play, until: Until, cut: int) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(cut, *workers)
        call = router.stream()
        events = [await call.read() for _ in range(cut)]
        await until(lambda: any(worker.running for worker in workers))
        lost, (other,) = busy(*workers)
        other.released.set()
        await lost.kill()
        rest, end = await read_events(call)
        got = deltas([*events, *rest])
        assert [token for delta in got for token in delta.token_ids] == TOKENS
        assert end.completion.worker == other.name
        assert end.completion.usage.generated_tokens == len(TOKENS)

    play(scenario, workers=2)


def test_a_unary_call_goes_on_likewise(play: Play, until: Until) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(1, *workers)
        call = router.generate()
        await until(lambda: router.metric("num_requests_running", model="tiny") == 1)
        lost, (other,) = busy(*workers)
        other.released.set()
        await lost.kill()
        assert (await call).sequences[0].token_ids == TOKENS

    play(scenario, workers=2)


def test_the_next_worker_gets_the_request_and_the_tokens_there_are(play: Play) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(2, *workers)
        call = router.stream(options=options(max_new_tokens=9, seed=4, do_sample=True))
        await call.read()
        await call.read()
        lost, (other,) = busy(*workers)
        other.released.set()
        await lost.kill()
        await read_events(call)
        (before,), (after,) = lost.requests, other.requests
        assert list(after.generated_token_ids) == TOKENS[:2]
        before.generated_token_ids.extend(TOKENS[:2])
        assert after == before

    play(scenario, workers=2)


def test_a_text_is_the_same_whatever_token_it_was_cut_at(
    play: Play, until: Until, encode: Callable[[str], list[int]]
) -> None:
    text = " naïve 👩‍👩‍👧‍👦 café 東京"
    tokens = encode(text)

    async def scenario(router: Router, *workers: FakeWorker) -> None:
        for cut in range(1, len(tokens)):
            for worker in workers:
                worker.released.clear()
                steps = [worker.tokens(token) for token in tokens]
                worker.script = [*steps[:cut], worker.hold, *steps[cut:], worker.completion()]
            call = router.stream()
            events = [await call.read() for _ in range(cut)]
            lost, (other,) = busy(*workers)
            other.released.set()
            await lost.kill()
            rest, _ = await read_events(call)
            assert "".join(delta.text for delta in deltas([*events, *rest])) == text
            await lost.start()
            await until(lambda: router.free_slots == 2 * fake_worker.SLOTS)

    play(scenario, workers=2)


def test_log_probabilities_go_on(play: Play) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(1, *workers)
        call = router.stream(options=options(logprobs=1))
        first = await call.read()
        lost, (other,) = busy(*workers)
        other.released.set()
        await lost.kill()
        rest, _ = await read_events(call)
        found = [one.chosen.token_id for d in deltas([first, *rest]) for one in d.logprobs]
        assert found == TOKENS

    play(scenario, workers=2)


def test_a_run_goes_on_after_several_losses(play: Play) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        alive = list(workers)
        hold_after(1, *alive)
        call = router.stream()
        events = [await call.read()]
        for cut in range(2, len(TOKENS) + 1):
            lost, alive = busy(*alive)
            hold_after(cut, *alive)
            await lost.kill()
            events.append(await call.read())
        lost, (last,) = busy(*alive)
        last.released.set()
        await lost.kill()
        rest, _ = await read_events(call)
        assert [token for d in deltas([*events, *rest]) for token in d.token_ids] == TOKENS

    play(scenario, workers=len(TOKENS) + 1)


def test_a_run_waits_for_the_only_worker_to_come_back(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        hold_after(2, worker)
        call = router.stream()
        events = [await call.read(), await call.read()]
        await worker.kill()
        worker.released.set()
        await worker.start()
        rest, end = await read_events(call)
        assert [token for d in deltas([*events, *rest]) for token in d.token_ids] == TOKENS
        assert end.completion.worker == worker.name

    play(scenario)


def test_a_run_that_waits_for_another_worker_ends_with_its_deadline(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        hold_after(1, worker)
        call = router.stream(timeout=0.7)
        await call.read()
        await worker.kill()
        error = await router.error(call)
        assert error.code() is StatusCode.DEADLINE_EXCEEDED
        assert "no worker was ready" in str(error.details())

    play(scenario)


def test_a_run_that_waits_for_another_worker_can_be_cancelled(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        hold_after(1, worker)
        call = router.stream()
        await call.read()
        await worker.kill()
        call.cancel()
        await until(lambda: router.metric("requests_total", model="tiny", code="CANCELLED") == 1)
        assert router.metric("num_requests_running", model="tiny") == 0

    play(scenario)


def test_a_run_that_had_said_nothing_goes_to_another_worker_as_it_was(
    play: Play, until: Until
) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(0, *workers)
        call = router.generate()
        await until(lambda: any(worker.running for worker in workers))
        lost, (other,) = busy(*workers)
        other.released.set()
        await lost.kill()
        assert (await call).completion.worker == other.name
        assert other.requests == lost.requests

    play(scenario, workers=2)


def test_a_run_that_had_only_stalled_goes_to_another_worker(play: Play) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        for worker in workers:
            worker.script = [worker.stall(), worker.hold, *worker.script]
        call = router.stream()
        assert (await call.read()).HasField("stall")
        lost, (other,) = busy(*workers)
        other.released.set()
        await lost.kill()
        events, end = await read_events(call)
        assert [event.WhichOneof("event") for event in events] == ["stall", "delta", "delta"]
        assert end.completion.worker == other.name

    play(scenario, workers=2)


def test_only_the_lost_sequences_of_a_request_go_on_elsewhere(play: Play, until: Until) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(1, *workers)
        for worker in workers:
            await worker.make_first_graphs()
        await until(lambda: router.metric("graphs", state="ready") == 4)
        call = router.generate(options=options(do_sample=True, num_return_sequences=2, seed=1))
        await until(lambda: all(worker.running for worker in workers))
        await until(lambda: router.metric("generation_tokens_total", model="tiny") == 2)
        lost, other = workers
        await lost.kill()
        await until(lambda: other.running == 2)
        other.released.set()
        assert [sequence.token_ids for sequence in (await call).sequences] == [TOKENS, TOKENS]
        assert [len(request.generated_token_ids) for request in other.requests] == [0, 1]

    play(scenario, workers=2)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"max_new_tokens": 3}, generation_pb2.FINISH_REASON_LENGTH),
        ({"max_new_tokens": 9, "eos_token_ids": [8]}, generation_pb2.FINISH_REASON_EOS),
    ],
    ids=["length", "end token"],
)
def test_a_run_of_which_only_the_end_was_lost_has_ended(
    play: Play, fields: dict[str, Any], reason: generation_pb2.FinishReason
) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(len(TOKENS), *workers)
        call = router.stream(options=options(**fields))
        for _ in TOKENS:
            await call.read()
        lost, (other,) = busy(*workers)
        await lost.kill()
        _, end = await read_events(call)
        assert end.sequences[0].finish_reason == reason
        assert not other.requests

    play(scenario, workers=2)


def test_the_metrics_and_the_log_tell_of_a_run_that_went_on(play: Play) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(2, *workers)
        call = router.stream()
        await call.read()
        await call.read()
        lost, (other,) = busy(*workers)
        other.released.set()
        await lost.kill()
        _, end = await read_events(call)
        assert resumed(router, "lost") == 1
        (line,) = (line for line in lines if line["event"] == "run resumed")
        assert (line["from"], line["to"], line["tokens"]) == (lost.name, other.name, 2)
        assert line["request_id"] == end.completion.request_id

    with capture_logs() as lines:
        play(scenario, workers=2)


def test_slots_of_a_lost_worker_are_not_shown(play: Play, until: Until) -> None:
    async def scenario(router: Router, first: FakeWorker, second: FakeWorker) -> None:
        assert router.free_slots == 8
        await first.kill()
        await until(lambda: router.free_slots == 4)

    play(scenario, workers=2)


# What may not go on for ever.


def test_a_request_that_kills_workers_does_not_go_on_to_kill_them_all(
    play: Play, until: Until, retry_seconds: RetrySeconds
) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(1, *workers)
        call = router.stream()
        await call.read()
        alive = list(workers)
        for _ in range(fleet.ATTEMPTS):
            await until(lambda alive=alive: any(worker.running for worker in alive))
            killed, alive = busy(*alive)
            await killed.kill()
        error = await router.error(call)
        assert error.code() is StatusCode.UNAVAILABLE
        assert killed.name in str(error.details())
        assert ("grpc-retry-pushback-ms", "-1") in tuple(error.trailing_metadata())
        assert retry_seconds(error) > 0
        assert sum(len(worker.requests) for worker in workers) == fleet.ATTEMPTS
        assert router.metric("num_requests_running", model="tiny") == 0

    play(scenario, workers=fleet.ATTEMPTS + 1)


def test_a_full_queue_does_not_end_a_run_that_had_its_place(
    play: Play, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "QUEUE_PAUSE", 0.01)

    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(1, *workers)
        call = router.stream()
        first = await call.read()
        lost, (other,) = busy(*workers)
        script, other.script = other.script, [QueueFullError("tiny", 256)]
        await lost.kill()
        await until(lambda: len(other.requests) > 2)
        other.released.set()
        other.script = script
        rest, _ = await read_events(call)
        assert [token for d in deltas([first, *rest]) for token in d.token_ids] == TOKENS
        assert resumed(router, "lost") == 1

    play(scenario, workers=2)


def test_a_full_queue_ends_a_run_whose_deadline_is_near(play: Play) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(1, *workers)
        call = router.stream(timeout=fleet.QUEUE_PAUSE)
        await call.read()
        lost, (other,) = busy(*workers)
        other.script = [QueueFullError("tiny", 256)]
        await lost.kill()
        assert (await router.error(call)).code() is StatusCode.RESOURCE_EXHAUSTED

    play(scenario, workers=2)


# Silence.


@pytest.fixture
def quick_hearts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are heard from often, and given up soon."""
    monkeypatch.setattr(fake_worker, "HEARTBEAT", 0.02)
    monkeypatch.setattr(link, "HEARTBEAT", 0.5)


@pytest.mark.usefixtures("quick_hearts")
def test_runs_of_a_worker_that_falls_silent_go_on_elsewhere(play: Play) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(2, *workers)
        call = router.stream()
        events = [await call.read(), await call.read()]
        silent, (other,) = busy(*workers)
        silent.freeze()
        other.released.set()
        rest, end = await read_events(call)
        assert [token for d in deltas([*events, *rest]) for token in d.token_ids] == TOKENS
        assert end.completion.worker == other.name
        assert resumed(router, "hung") == 1

    play(scenario, workers=2)


@pytest.mark.usefixtures("quick_hearts")
def test_a_worker_that_was_silent_is_used_again_and_its_old_runs_are_cancelled(
    play: Play, until: Until
) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(1, *workers)
        call = router.stream()
        await call.read()
        silent, (other,) = busy(*workers)
        silent.freeze()
        other.released.set()
        await read_events(call)
        assert silent.running == 1
        silent.thaw()
        await until(lambda: silent.cancelled == 1 and silent.running == 0)
        await until(lambda: router.free_slots == 2 * fake_worker.SLOTS)
        await other.kill()
        silent.released.set()
        assert (await router.generate()).completion.worker == silent.name

    play(scenario, workers=2)


@pytest.mark.usefixtures("quick_hearts")
def test_a_worker_that_only_has_nothing_new_to_tell_is_kept(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        hold_after(1, worker)
        call = router.stream()
        await call.read()
        heard = worker.told
        await until(lambda: worker.told > heard + 50 * MISSED_HEARTBEATS)
        worker.released.set()
        await read_events(call)
        assert resumed(router, "hung") == 0

    play(scenario)


# Draining.


def test_a_worker_that_drains_gets_nothing_new_and_ends_what_runs(play: Play, until: Until) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(1, *workers)
        call = router.stream()
        first = await call.read()
        draining, (other,) = busy(*workers)
        await draining.drain()
        await until(lambda: router.free_slots == fake_worker.SLOTS)
        other.released.set()
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
        assert resumed(router, "draining") >= fleet.ATTEMPTS + 1

    play(scenario, workers=fleet.ATTEMPTS + 2)


def test_a_request_that_meets_a_worker_as_it_begins_to_drain_goes_elsewhere(play: Play) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        refusing, other = workers
        # The router has not been told yet.
        refusing.draining = True
        completions = [(await router.generate()).completion for _ in range(4)]
        assert {completion.worker for completion in completions} == {other.name}

    play(scenario, workers=2)


def test_what_a_draining_worker_cuts_off_at_the_end_of_its_grace_goes_on_elsewhere(
    play: Play, until: Until
) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(1, *workers)
        call = router.stream()
        first = await call.read()
        draining, (other,) = busy(*workers)
        await draining.drain()
        await until(lambda: router.free_slots == fake_worker.SLOTS)
        other.released.set()
        await draining.stop()
        rest, _ = await read_events(call)
        assert [token for d in deltas([first, *rest]) for token in d.token_ids] == TOKENS
        assert resumed(router, "draining") == 1

    play(scenario, workers=2)


def test_many_streams_go_on_when_their_worker_dies(play: Play, until: Until) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        hold_after(2, *workers)
        calls = [router.generate() for _ in range(30)]
        await until(lambda: sum(worker.running for worker in workers) == len(calls))
        await until(lambda: router.metric("generation_tokens_total", model="tiny") == 60)
        lost, *others = workers
        expected = lost.running
        for worker in others:
            worker.released.set()
        await lost.kill()
        responses = await asyncio.gather(*calls)
        assert all(response.sequences[0].token_ids == TOKENS for response in responses)
        assert resumed(router, "lost") == expected

    play(scenario, workers=3)

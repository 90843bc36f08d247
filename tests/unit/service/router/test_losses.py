"""Runs of lost workers continue on others, and callers see no interruption."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from harness import fake_worker
from harness.holding import TOKENS, busy, hold_after, resumed
from harness.logs import capture_logs
from harness.router import deltas, read_events
from shaperouter.v1 import generation_pb2, worker_pb2

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Until = Callable[[Callable[[], bool]], Awaitable[None]]


def options(**fields: Any) -> generation_pb2.GenerationOptions:
    return generation_pb2.GenerationOptions(**fields)


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
        before.resumed = True
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


PROMPT = (5, 7, 3, 9)


def _scoring(*workers: FakeWorker, held_after: int) -> None:
    """Workers that score the prompt a token at a time, and then generate."""
    for worker in workers:
        worker.released.clear()
        steps = [*(worker.scores(token) for token in PROMPT[1:]), worker.tokens(*TOKENS)]
        worker.script = [*steps[:held_after], worker.hold, *steps[held_after:], worker.completion()]


@pytest.mark.parametrize("held_after", range(5))
@pytest.mark.parametrize("new_tokens", [0, len(TOKENS)])
def test_each_log_probability_of_the_prompt_comes_once(
    play: Play, until: Until, held_after: int, new_tokens: int
) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        _scoring(*workers, held_after=held_after)
        call = router.stream(
            text=None,
            token_ids=generation_pb2.TokenIds(ids=PROMPT),
            options=options(max_new_tokens=new_tokens, prompt_logprobs=0),
        )
        events = [await call.read() for _ in range(min(held_after, 3 + new_tokens))]
        await until(lambda: any(worker.running for worker in workers))
        lost, (other,) = busy(*workers)
        other.released.set()
        await lost.kill()
        rest, end = await read_events(call)
        logprobs = [one for e in [*events, *rest] for one in e.prompt_logprobs.logprobs]
        assert [one.chosen.token_id for one in logprobs] == list(PROMPT[1:])
        got = [token for delta in deltas([*events, *rest]) for token in delta.token_ids]
        assert got == TOKENS[:new_tokens]
        assert end.sequences[0].finish_reason == generation_pb2.FINISH_REASON_LENGTH
        for after in other.requests:
            # A prompt that is scored is only read again.
            assert after.scored_tokens == min(held_after, 3)
            assert after.options.HasField("prompt_logprobs") == (held_after < 3)

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


@pytest.mark.parametrize("beams", [1, 2])
def test_a_run_whose_worker_is_lost_after_its_last_word_is_not_run_again(
    play: Play, beams: int
) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        for worker in workers:
            worker.script = [worker.tokens(*TOKENS), worker.completion()]
            worker.after_completion = [worker.hold]
        call = router.stream(options=options(num_beams=beams, max_new_tokens=len(TOKENS)))
        got = [await call.read()]
        lost, (other,) = busy(*workers)
        await lost.kill()
        rest, end = await read_events(call)
        tokens = [token for delta in deltas([*got, *rest]) for token in delta.token_ids]
        assert tokens == TOKENS
        assert end.completion.usage.generated_tokens == len(TOKENS)
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


def test_a_stopped_run_counts_what_its_last_worker_read(
    play: Play, encode: Callable[[str], Sequence[int]]
) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        for cached, worker in enumerate(workers, start=1):
            read = worker_pb2.InputUsage(cached_prompt_tokens=cached)
            worker.script = [
                worker.tokens(*encode("an "), input_usage=read),
                worker.hold,
                worker.tokens(*encode("end"), input_usage=read),
                worker.hold,
            ]
        call = router.stream(options=options(stop=["end"]))
        await call.read()
        lost, (other,) = busy(*workers)
        other.released.set()
        await lost.kill()
        _, end = await read_events(call)
        assert end.completion.worker == other.name
        assert workers[end.completion.usage.cached_prompt_tokens - 1] is other

    play(scenario, workers=2)


def test_slots_of_a_lost_worker_are_not_shown(play: Play, until: Until) -> None:
    async def scenario(router: Router, first: FakeWorker, second: FakeWorker) -> None:
        assert router.free_slots == 8
        await first.kill()
        await until(lambda: router.free_slots == 4)

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

"""Requests for several sequences through a router: sampled side by side, or found by beams."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from grpc import StatusCode

from harness.router import agreed, read_events
from shaperouter.v1 import generation_pb2, worker_pb2
from shaperouter_service.errors import QueueFullError
from shaperouter_service.serving.generation.preparation import sequence_seed

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router
    from shaperouter_service.text import Tokenizer

Until = Callable[[Callable[[], bool]], Awaitable[None]]
Encode = Callable[[str], Sequence[int]]

LENGTH = generation_pb2.FINISH_REASON_LENGTH


def options(**fields: Any) -> generation_pb2.GenerationOptions:
    return generation_pb2.GenerationOptions(**fields)


def answers_by_seed(worker: FakeWorker, request: worker_pb2.RunRequest) -> list[Any]:
    """A script whose one token tells runs of different seeds apart."""
    return [worker.tokens(1 + request.options.seed % 255), worker.completion()]


# Several sequences that are sampled.


def test_sequences_that_are_sampled_are_runs_of_their_own(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script_of = lambda request: answers_by_seed(worker, request)
        asked = options(do_sample=True, num_return_sequences=3, seed=7)
        response = await agreed(router, options=asked)
        seeds = [sequence_seed(7, index) for index in range(3)]
        assert [sequence.token_ids for sequence in response.sequences] == [
            [1 + seed % 255] for seed in seeds
        ]
        runs = sorted(worker.requests[:3], key=lambda run: run.request_id)
        request_id = response.completion.request_id
        assert [run.request_id for run in runs] == [
            request_id,
            f"{request_id}/1",
            f"{request_id}/2",
        ]
        assert [run.options.seed for run in runs] == seeds
        assert {run.options.num_return_sequences for run in runs} == {1}
        assert response.completion.seed == 7

    play(scenario)


def test_the_first_sequence_is_what_the_seed_gives_alone(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script_of = lambda request: answers_by_seed(worker, request)
        alone = await router.generate(options=options(do_sample=True, seed=2**63 - 1))
        among = await router.generate(
            options=options(do_sample=True, seed=2**63 - 1, num_return_sequences=2)
        )
        assert alone.sequences[0] == among.sequences[0] != among.sequences[1]

    play(scenario)


def test_seeds_of_sequences_are_fixed_valid_and_distinct() -> None:
    # Their values must never change: the same request gives the same tokens with any release.
    assert sequence_seed(7, 0) == 7
    assert sequence_seed(7, 1) == 1067193964161751936
    seeds = {sequence_seed(seed, index) for seed in (0, 1, 2**63 - 1) for index in range(16)}
    assert len(seeds) == 48
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_sequences_grow_side_by_side(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [worker.tokens(5), worker.hold, worker.tokens(7), worker.completion()]
        call = router.stream(options=options(do_sample=True, num_return_sequences=3))
        first = [await call.read() for _ in range(3)]
        assert {event.delta.sequence for event in first} == {0, 1, 2}
        worker.released.set()
        rest = [await call.read() for _ in range(4)]
        assert rest[-1].HasField("completion")

    play(scenario)


def test_sequences_are_spread_over_workers(play: Play, until: Until) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        for worker in workers:
            await worker.make_first_graphs()
        await until(lambda: router.metric("graphs", state="ready") == 4)
        await router.generate(options=options(do_sample=True, num_return_sequences=4))
        assert [len(worker.requests) for worker in workers] == [2, 2]

    play(scenario, workers=2)


def test_a_request_of_several_runs_is_accounted_for_as_one(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        response = await router.generate(options=options(do_sample=True, num_return_sequences=3))
        completion = response.completion
        assert completion.usage.prompt_tokens == 1
        assert completion.usage.padded_prompt_tokens == 16
        assert completion.usage.generated_tokens == 9
        assert completion.timings.queue_seconds == 0.125
        (use,) = completion.graphs
        assert (use.calls, use.device_seconds) == (3, 3 * 0.0625)
        await until(lambda: router.metric("requests_total", model="tiny", code="OK") == 1)
        assert router.metric("prompt_tokens_total", model="tiny") == 1
        assert router.metric("generation_tokens_total", model="tiny") == 9

    play(scenario)


def test_a_stall_that_several_sequences_share_is_told_once(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        compiled = asyncio.Event()
        answer = [worker.stall(), worker.tokens(5), worker.completion()]
        worker.script_of = lambda request: (
            [worker.hold, *answer]
            if "/" in request.request_id
            else [answer[0], compiled.wait, *answer[1:]]
        )
        call = router.stream(options=options(do_sample=True, num_return_sequences=3))
        assert (await call.read()).HasField("stall")
        worker.released.set()
        assert {(await call.read()).delta.sequence for _ in range(2)} == {1, 2}
        compiled.set()
        assert (await call.read()).HasField("delta")

    play(scenario)


def test_a_sequence_that_fails_ends_the_request_and_the_other_runs(
    play: Play, until: Until
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script_of = lambda request: (
            [QueueFullError("tiny", 4)]
            if request.request_id.endswith("/1")
            else [worker.tokens(5), worker.hold]
        )
        error = await router.error(
            router.stream(options=options(do_sample=True, num_return_sequences=3))
        )
        assert error.code() is StatusCode.RESOURCE_EXHAUSTED
        await until(lambda: worker.running == 0)

    play(scenario)


def test_cancelling_reaches_the_runs_of_all_sequences(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [worker.tokens(5), worker.hold]
        call = router.stream(options=options(do_sample=True, num_return_sequences=3))
        await until(lambda: worker.running == 3)
        call.cancel()
        await until(lambda: worker.cancelled == 3)
        await until(lambda: router.metric("requests_total", model="tiny", code="CANCELLED") == 1)

    play(scenario)


# Beam search.


def test_beam_search_gives_its_hypotheses_from_best_to_worst(
    play: Play, tokenizer: Tokenizer
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        response = await agreed(router, options=options(num_beams=3, num_return_sequences=2))
        best, second = response.sequences
        assert (best.token_ids, best.score, best.finish_reason) == ([5, 7, 8], -0.5, LENGTH)
        assert best.text == tokenizer.decode([5, 7, 8])
        assert (second.token_ids, second.score) == ([9], -1.25)
        assert response.completion.usage.generated_tokens == 4
        assert [run.options.num_return_sequences for run in worker.requests] == [2, 2]

    play(scenario)


def test_a_beam_search_that_found_less_than_was_asked_for_returns_what_it_found(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        response = await agreed(router, options=options(num_beams=4, num_return_sequences=4))
        assert [sequence.token_ids for sequence in response.sequences] == [[5, 7, 8], [9]]

    play(scenario)


def test_each_hypothesis_is_one_delta(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        events, end = await read_events(
            router.stream(options=options(num_beams=2, num_return_sequences=2))
        )
        assert [(event.delta.sequence, list(event.delta.token_ids)) for event in events] == [
            (0, [5, 7, 8]),
            (1, [9]),
        ]
        assert [ended.score for ended in end.sequences] == [-0.5, -1.25]

    play(scenario)


def test_an_end_token_of_a_hypothesis_is_counted_but_not_shown(play: Play, encode: Encode) -> None:
    (eos,) = encode("!")

    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.hypotheses = [worker.hypothesis(-0.5, *encode("Stop"), eos)]
        asked = options(num_beams=2, eos_token_ids=[eos])
        (sequence,) = (await agreed(router, options=asked)).sequences
        assert (sequence.text, sequence.token_ids[-1]) == ("Stop", eos)

    play(scenario)


def test_only_beam_search_has_scores(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        (sequence,) = (await agreed(router)).sequences
        assert not sequence.HasField("score")

    play(scenario)


def test_a_beam_search_that_a_worker_took_along_is_done_by_another(
    play: Play, until: Until
) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        for worker in workers:
            worker.script_of = lambda request, worker=worker: [
                worker.hold,
                worker.completion(LENGTH, worker.hypotheses[:1]),
            ]
        call = router.generate(options=options(num_beams=2))
        await until(lambda: any(worker.running for worker in workers))
        lost, other = sorted(workers, key=lambda worker: -worker.running)
        other.released.set()
        await lost.kill()
        assert (await call).sequences[0].token_ids == [5, 7, 8]

    play(scenario, workers=2)

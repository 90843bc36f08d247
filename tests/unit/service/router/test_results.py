"""Results of a router: tokens, their text and their cost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from grpc import StatusCode

from harness.router import read_events
from harness.waiting import TIMEOUT
from shaperouter.v1 import generation_pb2
from shaperouter_service.errors import QueueFullError

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router
    from shaperouter_service.text import Tokenizer

Until = Callable[[Callable[[], bool]], Awaitable[None]]
Encode = Callable[[str], Sequence[int]]


def test_a_unary_result_has_all_tokens_and_their_text(play: Play, tokenizer: Tokenizer) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        response = await router.generate()
        (sequence,) = response.sequences
        assert sequence.token_ids == [5, 7, 8]
        assert sequence.text == tokenizer.decode([5, 7, 8])
        assert sequence.finish_reason == generation_pb2.FINISH_REASON_LENGTH

    play(scenario)


def test_a_stream_gives_events_in_the_workers_order(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [
            worker.stall(),
            worker.tokens(5),
            worker.stall(24),
            worker.tokens(7, 8),
            worker.completion(),
        ]
        events = [event async for event in router.stream()]
        assert [event.WhichOneof("event") for event in events] == [
            "stall",
            "delta",
            "stall",
            "delta",
            "completion",
        ]
        assert [list(event.delta.token_ids) for event in events if event.HasField("delta")] == [
            [5],
            [7, 8],
        ]
        assert events[2].stall.signature == worker.signature(24)

    play(scenario)


def test_tokens_come_as_they_are_made(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script.insert(1, worker.hold)
        call = router.stream()
        first = await call.read()
        assert first.delta.token_ids == [5]
        assert worker.running == 1
        worker.released.set()
        second = await call.read()
        assert second.delta.token_ids == [7, 8]

    play(scenario)


def test_only_who_reads_along_is_told_each_chunk(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await router.generate()
        await router.generate(options=generation_pb2.GenerationOptions(stop=["x"]))
        await read_events(router.stream())
        intervals = [request.tokens_interval_seconds for request in worker.requests]
        assert [interval > 0 for interval in intervals] == [True, False, False]

    play(scenario)


def test_unary_and_stream_agree(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        response = await router.generate(options=generation_pb2.GenerationOptions(seed=3))
        events = [
            event async for event in router.stream(options=generation_pb2.GenerationOptions(seed=3))
        ]
        assert "".join(event.delta.text for event in events) == response.sequences[0].text
        end = events[-1].completion
        assert end.sequences[0].finish_reason == response.sequences[0].finish_reason
        assert end.completion.usage == response.completion.usage
        assert end.completion.graphs == response.completion.graphs

    play(scenario)


def test_the_completion_tells_what_the_worker_told(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        response = await router.generate()
        completion, told = response.completion, worker.completion().completion
        assert (completion.model, completion.worker) == ("tiny", "worker-0")
        timings = completion.timings
        assert (timings.queue_seconds, timings.stall_seconds) == (0.125, 2.5)
        assert (timings.prefill_seconds, timings.decode_seconds) == (0.25, 0.5)
        assert list(completion.graphs) == list(told.graphs)

    play(scenario)


def test_usage_counts_prompt_padding_and_new_tokens(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        response = await router.generate(token_ids=generation_pb2.TokenIds(ids=[1, 2, 3]))
        usage = response.completion.usage
        assert (usage.prompt_tokens, usage.padded_prompt_tokens) == (3, 16)
        assert usage.generated_tokens == 3

    play(scenario)


def test_the_first_token_comes_before_the_end(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        timings = (await router.generate()).completion.timings
        assert 0 < timings.time_to_first_token_seconds <= timings.total_seconds < TIMEOUT

    play(scenario)


def test_the_seed_that_was_used_is_told(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        chosen = await router.generate()
        given = await router.generate(options=generation_pb2.GenerationOptions(seed=2**63 - 1))
        assert chosen.completion.seed == worker.requests[0].options.seed
        assert given.completion.seed == worker.requests[1].options.seed == 2**63 - 1

    play(scenario)


def test_the_request_id_of_the_header_is_that_of_the_completion(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        call = router.generate()
        header = dict(await call.initial_metadata())
        response = await call
        assert header["x-request-id"] == response.completion.request_id
        assert header["x-request-id"] == worker.requests[0].request_id

    play(scenario)


def test_every_request_has_an_id_of_its_own(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        responses = await asyncio.gather(*(router.generate() for _ in range(5)))
        assert len({response.completion.request_id for response in responses}) == 5

    play(scenario)


def test_an_error_carries_the_request_id(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [QueueFullError("tiny", 4)]
        error = await router.error(router.generate())
        metadata = dict(error.initial_metadata()) | dict(error.trailing_metadata())
        assert metadata["x-request-id"] == worker.requests[0].request_id

    play(scenario)


def test_the_worker_gets_every_option_resolved(play: Play, encode: Encode) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await router.generate(text="TensorFlow is")
        (request,) = worker.requests
        assert request.model == "tiny"
        assert request.token_ids == encode("TensorFlow is")
        assert request.options.max_new_tokens == 64 - len(request.token_ids)
        assert request.options.temperature == 1.0
        assert request.options.eos_token_ids == [0]

    play(scenario)


def test_token_ids_go_to_the_worker_as_they_are(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await router.generate(token_ids=generation_pb2.TokenIds(ids=[0, 319, 0]))
        assert worker.requests[0].token_ids == [0, 319, 0]

    play(scenario)


def test_a_character_over_several_tokens_is_never_shown_broken(play: Play, encode: Encode) -> None:
    text = "naïve 東京 👩‍👩‍👧‍👦 𝄞!"

    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [*(worker.tokens(token) for token in encode(text)), worker.completion()]
        pieces = [event.delta.text async for event in router.stream()]
        assert "".join(pieces) == text
        assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)

    play(scenario)


def test_a_character_that_stays_broken_comes_at_the_end(play: Play, encode: Encode) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [worker.tokens(*encode("𝄞")[:2]), worker.completion()]
        events = [event async for event in router.stream()]
        assert [event.delta.text for event in events] == ["", "\N{REPLACEMENT CHARACTER}", ""]
        assert events[-1].HasField("completion")

    play(scenario)


def test_an_end_token_is_counted_but_not_shown(play: Play, encode: Encode) -> None:
    # One that is not a special token, so that the tokenizer would show it.
    (end,) = encode("!")

    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [
            worker.tokens(*encode("Stop"), end),
            worker.completion(generation_pb2.FINISH_REASON_EOS),
        ]
        options = generation_pb2.GenerationOptions(eos_token_ids=[end])
        (sequence,) = (await router.generate(options=options)).sequences
        assert sequence.text == "Stop"
        assert sequence.token_ids[-1] == end
        assert sequence.finish_reason == generation_pb2.FINISH_REASON_EOS

    play(scenario)


def test_a_model_without_a_tokenizer_gives_token_ids_only(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        (sequence,) = (await router.generate()).sequences
        assert (sequence.text, list(sequence.token_ids)) == ("", [5, 7, 8])
        error = await router.error(router.generate(text="TensorFlow is"))
        assert error.code() is StatusCode.INVALID_ARGUMENT
        assert "token_ids" in str(error.details())

    play(scenario, text=False)


def test_a_request_is_counted(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await router.generate(token_ids=generation_pb2.TokenIds(ids=[1, 2, 3]))
        # The answer is on its way before the count.
        await until(lambda: router.metric("requests_total", model="tiny", code="OK") == 1)
        assert router.metric("prompt_tokens_total", model="tiny") == 3
        assert router.metric("generation_tokens_total", model="tiny") == 3
        assert router.metric("num_requests_waiting", model="tiny") == 0
        assert router.metric("num_requests_running", model="tiny") == 0

    play(scenario)

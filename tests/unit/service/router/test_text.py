"""How a router handles a run's text: stop strings, echo, log-probabilities, banned words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from harness.router import agreed, deltas, read_events
from shaperouter.v1 import generation_pb2, worker_pb2

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router
    from shaperouter_service.text import Tokenizer

Until = Callable[[Callable[[], bool]], Awaitable[None]]
Encode = Callable[[str], Sequence[int]]

STOP = generation_pb2.FINISH_REASON_STOP
LENGTH = generation_pb2.FINISH_REASON_LENGTH


def options(**fields: Any) -> generation_pb2.GenerationOptions:
    return generation_pb2.GenerationOptions(**fields)


# Stop strings.


def chunks(ids: Sequence[int], size: int) -> list[Sequence[int]]:
    return [ids[start : start + size] for start in range(0, len(ids), size)]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_stop_string_ends_the_sequence_alike_with_any_chunks(
    play: Play, encode: Encode, tokenizer: Tokenizer, size: int
) -> None:
    ids = encode("The naïve café serves crème brûlée to Zoë.")
    expected = next(
        ids[:count] for count in range(len(ids)) if "serve" in tokenizer.decode(ids[:count])
    )

    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [*(worker.tokens(*part) for part in chunks(ids, size)), worker.hold]
        asked = options(stop=["Zoë", "serve"], logprobs=2)
        (sequence,) = (await agreed(router, options=asked)).sequences
        assert (sequence.text, sequence.finish_reason) == ("The naïve café ", STOP)
        assert sequence.token_ids == expected
        assert [each.chosen.token_id for each in sequence.logprobs] == expected

    play(scenario)


def test_a_stop_string_frees_the_slot(play: Play, encode: Encode, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [worker.tokens(*encode("end.")), worker.hold]
        await router.generate(options=options(stop=["end"]))
        await until(lambda: worker.cancelled == 1)
        assert not worker.running

    play(scenario)


def test_a_request_that_a_stop_string_ended_has_ended_well(
    play: Play, encode: Encode, until: Until
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [
            worker.stall(),
            worker.tokens(*encode("an ")),
            worker.tokens(*encode("end")),
            worker.hold,
        ]
        response = await router.generate(options=options(stop=["end"]))
        timings = response.completion.timings
        assert timings.total_seconds >= timings.time_to_first_token_seconds > 0
        assert timings.stall_seconds > 0
        assert not response.completion.graphs
        usage = response.completion.usage
        assert usage.generated_tokens == len(response.sequences[0].token_ids)
        await until(lambda: router.metric("requests_total", model="tiny", code="OK") == 1)
        assert router.metric("num_requests_running", model="tiny") == 0
        assert router.metric("request_queue_time_seconds_count", model="tiny") == 0

    play(scenario)


def test_a_stopped_request_counts_what_its_worker_had_read(play: Play, encode: Encode) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        read = worker_pb2.InputUsage(
            cached_prompt_tokens=32, padded_prompt_tokens=16, padded_source_tokens=24
        )
        worker.script = [
            worker.tokens(*encode("an "), input_usage=read),
            worker.tokens(*encode("end")),
            worker.hold,
        ]
        usage = (await agreed(router, options=options(stop=["end"]))).completion.usage
        assert usage.cached_prompt_tokens == 32
        assert usage.padded_prompt_tokens == 16
        assert usage.padded_source_tokens == 24

    play(scenario)


def test_sequences_count_what_was_read_whether_stopped_or_not(play: Play, encode: Encode) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        ended = worker.completion()
        ended.completion.cached_prompt_tokens = 48
        stopped = worker_pb2.InputUsage(cached_prompt_tokens=32, padded_prompt_tokens=64)
        worker.script_of = lambda request: (
            [worker.tokens(*encode("an end"), input_usage=stopped), worker.hold]
            if request.request_id.endswith("/1")
            else [worker.tokens(*encode("a start")), ended]
        )
        asked = options(do_sample=True, num_return_sequences=3, stop=["end"])
        usage = (await agreed(router, options=asked)).completion.usage
        # The smallest number of copied tokens, and the largest of computed ones.
        assert (usage.cached_prompt_tokens, usage.padded_prompt_tokens) == (32, 64)

    play(scenario)


def test_what_may_begin_a_stop_string_is_held_back(play: Play, encode: Encode) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [
            worker.tokens(*encode("a -")),
            worker.tokens(*encode("- b")),
            worker.completion(),
        ]
        events, end = await read_events(router.stream(options=options(stop=["---"])))
        assert [delta.text for delta in deltas(events)] == ["a ", "-- b"]
        assert end.sequences[0].finish_reason == LENGTH

    play(scenario)


def test_text_that_is_held_back_to_the_end_comes_then(play: Play, encode: Encode) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [worker.tokens(*encode("a --")), worker.completion()]
        (sequence,) = (await agreed(router, options=options(stop=["---"]))).sequences
        assert (sequence.text, sequence.finish_reason) == ("a --", LENGTH)

    play(scenario)


def test_a_stop_string_of_one_sequence_does_not_end_the_others(play: Play, encode: Encode) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script_of = lambda request: [
            worker.tokens(*encode("an end" if request.request_id.endswith("/1") else "a start")),
            worker.completion(),
        ]
        asked = options(do_sample=True, num_return_sequences=3, stop=["end"])
        response = await agreed(router, options=asked)
        assert [(each.text, each.finish_reason) for each in response.sequences] == [
            ("a start", LENGTH),
            ("an ", STOP),
            ("a start", LENGTH),
        ]
        # Events of the other runs were delivered.
        assert response.completion.graphs[0].calls == 2

    play(scenario)


def test_an_end_token_is_not_searched_for_stop_strings(play: Play, encode: Encode) -> None:
    (eos,) = encode("!")

    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [
            worker.tokens(*encode("Hi"), eos),
            worker.completion(generation_pb2.FINISH_REASON_EOS),
        ]
        asked = options(eos_token_ids=[eos], stop=["!"])
        (sequence,) = (await agreed(router, options=asked)).sequences
        assert (sequence.text, sequence.finish_reason) == ("Hi", generation_pb2.FINISH_REASON_EOS)
        assert sequence.token_ids[-1] == eos

    play(scenario)


# Echo and log-probabilities.


def test_echo_begins_with_the_prompts_text(
    play: Play, encode: Encode, tokenizer: Tokenizer
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        prompt = "The  café<|endoftext|>"
        response = await agreed(router, text=prompt, options=options(echo=True, logprobs=0))
        (sequence,) = response.sequences
        assert sequence.text == prompt + tokenizer.decode([5, 7, 8])
        assert sequence.token_ids == [*encode(prompt), 5, 7, 8]
        assert len(sequence.logprobs) == 3
        assert response.completion.usage.generated_tokens == 3

    play(scenario)


def test_echo_of_token_ids_is_what_they_decode_to(
    play: Play, encode: Encode, tokenizer: Tokenizer
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        ids = encode("TensorFlow is")
        (sequence,) = (
            await agreed(
                router, token_ids=generation_pb2.TokenIds(ids=ids), options=options(echo=True)
            )
        ).sequences
        assert sequence.text == "TensorFlow is" + tokenizer.decode([5, 7, 8])

    play(scenario)


@pytest.mark.parametrize("mode", [{"num_beams": 2}, {"do_sample": True}], ids=str)
def test_echo_is_the_first_delta_of_each_sequence(play: Play, mode: dict[str, Any]) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        asked = options(echo=True, num_return_sequences=2, **mode)
        events, _ = await read_events(router.stream(text="The", options=asked))
        for index in range(2):
            first, *rest = deltas(events, index)
            assert first.text == "The"
            assert all(delta.token_ids and not delta.text.startswith("The") for delta in rest)

    play(scenario)


def test_a_stop_string_in_the_prompt_ends_nothing(play: Play, encode: Encode) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [worker.tokens(*encode("and")), worker.completion()]
        asked = options(echo=True, stop=["end", "da"])
        (sequence,) = (await agreed(router, text="the end", options=asked)).sequences
        assert sequence.text == "the endand"

    play(scenario)


def test_echo_without_a_tokenizer_has_ids_only(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        (sequence,) = (await agreed(router, options=options(echo=True))).sequences
        assert (sequence.text, sequence.token_ids) == ("", [1, 5, 7, 8])

    play(scenario, text=False)


@pytest.mark.parametrize("likeliest", [0, 3])
def test_log_probabilities_are_the_workers(play: Play, likeliest: int) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        (sequence,) = (await agreed(router, options=options(logprobs=likeliest))).sequences
        assert list(sequence.logprobs) == worker.logprobs([5, 7, 8], likeliest)

    play(scenario)


def test_hypotheses_have_log_probabilities_too(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        asked = options(num_beams=2, num_return_sequences=2, logprobs=0)
        best, second = (await agreed(router, options=asked)).sequences
        assert list(best.logprobs) == worker.logprobs([5, 7, 8], 0)
        assert list(second.logprobs) == worker.logprobs([9], 0)

    play(scenario)


def test_nobody_gets_log_probabilities_unasked(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        (sequence,) = (await agreed(router)).sequences
        assert not sequence.logprobs

    play(scenario)


# Banned words.


def test_banned_words_reach_the_worker_as_tokens(play: Play, encode: Encode) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await router.generate(options=options(bad_words=["graph", " graph"]))
        (run,) = worker.requests
        assert [list(bias.token_ids) for bias in run.options.biases] == [
            encode("graph"),
            encode(" graph"),
        ]

    play(scenario)


def test_the_prompts_log_probabilities_come_before_its_sequences(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [worker.scores(7, 3), worker.scores(9), *worker.script]
        prompt = generation_pb2.TokenIds(ids=[5, 7, 3, 9])
        asked = options(prompt_logprobs=0, logprobs=0, echo=True)
        response = await agreed(router, text=None, token_ids=prompt, options=asked)
        assert list(response.prompt_logprobs) == worker.logprobs([7, 3, 9], 0)
        assert len(response.sequences[0].logprobs) == len(response.sequences[0].token_ids) - 4
        (run, _) = worker.requests
        assert run.options.prompt_logprobs == 0
        assert run.options.HasField("prompt_logprobs")

    play(scenario)


def test_one_run_scores_the_prompt_of_all_sequences(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        script = worker.script

        def script_of(request: worker_pb2.RunRequest) -> list[Any]:
            # The others generate their tokens first.
            scores = [worker.hold, worker.scores(7)]
            return [*(scores if request.options.HasField("prompt_logprobs") else ()), *script]

        worker.script_of = script_of
        prompt = generation_pb2.TokenIds(ids=[5, 7])
        asked = options(prompt_logprobs=0, do_sample=True, num_return_sequences=3)
        call = router.stream(text=None, token_ids=prompt, options=asked)
        await until(lambda: len(worker.requests) == 3 and worker.running == 1)
        worker.released.set()
        events, _ = await read_events(call)
        assert events[0].HasField("prompt_logprobs")
        assert {event.WhichOneof("event") for event in events[1:]} == {"delta"}
        assert {event.delta.sequence for event in events[1:]} == {0, 1, 2}

    play(scenario)


def test_a_prompt_is_scored_without_new_tokens(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [worker.scores(7, 3), *worker.script]
        prompt = generation_pb2.TokenIds(ids=[5, 7, 3])
        asked = options(prompt_logprobs=0, max_new_tokens=0, echo=True)
        response = await agreed(router, text=None, token_ids=prompt, options=asked)
        assert list(response.prompt_logprobs) == worker.logprobs([7, 3], 0)
        (sequence,) = response.sequences
        assert (sequence.token_ids, sequence.finish_reason) == ([5, 7, 3], LENGTH)
        assert response.completion.usage.generated_tokens == 0

    play(scenario)

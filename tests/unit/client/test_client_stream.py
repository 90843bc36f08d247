"""Streams of the blocking client."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import grpc
import pytest

from harness.waiting import TIMEOUT
from shaperouter import (
    CallCancelledError,
    Client,
    Delta,
    GraphKind,
    InternalError,
    Signature,
    UnavailableError,
)
from shaperouter.v1 import generation_pb2

if TYPE_CHECKING:
    from conftest import FakeShaperouter


def test_deltas_arrive_in_order_and_add_up_to_the_result(client: Client) -> None:
    with client.stream("TensorFlow is") as stream:
        deltas = list(stream)
    assert deltas == [
        Delta(text=" a", token_ids=(5,)),
        Delta(text=" library", token_ids=(7, 8)),
    ]
    assert stream.result == client.generate("TensorFlow is")


def test_deltas_of_several_sequences_add_up_to_each_of_them(
    fake: FakeShaperouter, client: Client
) -> None:
    second = fake.delta(" second", 9, sequence=1)
    second.delta.logprobs.append(fake.logprobs(9, -1.5))
    fake.script = [
        fake.delta(" a", 5),
        second,
        fake.delta(" library", 7, 8),
        fake.completion(-0.5, -1.25),
    ]
    with client.stream("x") as stream:
        assert [delta.sequence for delta in stream] == [0, 1, 0]
    best, other = stream.result.sequences
    assert (best.text, best.token_ids, best.score) == (" a library", (5, 7, 8), -0.5)
    assert (other.text, other.token_ids, other.score) == (" second", (9,), -1.25)
    assert [each.chosen.logprob for each in other.logprobs] == [-1.5]


def test_the_prompts_log_probabilities_are_known_before_the_first_delta(
    fake: FakeShaperouter, client: Client
) -> None:
    pieces = [
        generation_pb2.GenerateStreamResponse(
            prompt_logprobs=generation_pb2.PromptLogprobs(logprobs=[fake.logprobs(token, -1.5)])
        )
        for token in (5, 7)
    ]
    fake.script = [*pieces, *fake.script]
    with client.stream("x", prompt_logprobs=0) as stream:
        next(stream)
        found = stream.prompt_logprobs
        assert [each.chosen.token_id for each in found] == [5, 7]
        list(stream)
    assert stream.result.prompt_logprobs == found


def test_a_sequence_may_have_no_delta(fake: FakeShaperouter, client: Client) -> None:
    fake.script = [fake.completion()]
    stream = client.stream("x")
    assert list(stream) == []
    assert (stream.result.text, stream.result.token_ids) == ("", ())


def test_completion_without_a_sequence_is_an_internal_error(
    fake: FakeShaperouter, client: Client
) -> None:
    end = fake.completion()
    del end.completion.sequences[:]
    fake.script[-1] = end
    with pytest.raises(InternalError, match="without a sequence"):
        list(client.stream("x"))


def test_deltas_arrive_as_they_are_generated(fake: FakeShaperouter, client: Client) -> None:
    fake.script.insert(2, fake.hold)
    with client.stream("x") as stream:
        assert next(stream).text == " a"
        fake.released.set()
        assert [str(delta) for delta in stream] == [" library"]


def test_on_stall_is_called_before_the_token_that_waited(client: Client) -> None:
    happened: list[object] = []
    note = happened.append
    for delta in client.stream("x", on_stall=note):
        note(delta.text)
    stall = Signature(model="demo", kind=GraphKind.PREFILL, rows=1, length=16)
    assert happened == [stall, " a", " library"]


def test_result_before_the_end_is_a_runtime_error(fake: FakeShaperouter, client: Client) -> None:
    fake.script.insert(2, fake.hold)
    with client.stream("x") as stream:
        next(stream)
        with pytest.raises(RuntimeError, match="read to its end"):
            _ = stream.result


def test_a_stream_that_has_ended_stays_ended(client: Client) -> None:
    stream = client.stream("x")
    list(stream)
    assert list(stream) == []
    stream.cancel()
    assert stream.result.text == " a library"


def test_leaving_the_block_early_cancels_the_call(fake: FakeShaperouter, client: Client) -> None:
    fake.script.insert(2, fake.hold)
    with client.stream("x") as stream:
        next(stream)
    assert fake.cancelled.wait(TIMEOUT)


def test_dropping_the_stream_cancels_the_call(fake: FakeShaperouter, client: Client) -> None:
    fake.script.insert(2, fake.hold)
    for _ in client.stream("x"):
        break
    gc.collect()
    assert fake.cancelled.wait(TIMEOUT)


def test_cancelled_stream_raises_in_its_reader(fake: FakeShaperouter, client: Client) -> None:
    fake.script.insert(2, fake.hold)
    stream = client.stream("x")
    next(stream)
    stream.cancel()
    with pytest.raises(CallCancelledError):
        next(stream)
    assert fake.cancelled.wait(TIMEOUT)


def test_error_of_on_stall_reaches_the_reader(fake: FakeShaperouter, client: Client) -> None:
    fake.script.insert(1, fake.hold)

    def refuse(signature: Signature) -> None:
        raise LookupError(str(signature))

    with pytest.raises(LookupError, match="prefill 1x16"), client.stream("x", on_stall=refuse) as s:
        next(s)
    assert fake.cancelled.wait(TIMEOUT)


def test_error_after_tokens_is_raised_and_not_retried(
    fake: FakeShaperouter, client: Client
) -> None:
    fake.script[2:] = [fake.fail(grpc.StatusCode.UNAVAILABLE, "worker-0 was lost")]
    stream = client.stream("x")
    assert next(stream).text == " a"
    with pytest.raises(UnavailableError, match="worker-0 was lost") as caught:
        next(stream)
    assert caught.value.retriable
    assert caught.value.request_id == "req-7"
    assert len(fake.requests) == 1


def test_end_without_completion_is_an_internal_error(fake: FakeShaperouter, client: Client) -> None:
    del fake.script[-1]
    with pytest.raises(InternalError, match="without its completion"):
        list(client.stream("x"))


def test_event_after_completion_is_an_internal_error(fake: FakeShaperouter, client: Client) -> None:
    fake.script.append(fake.delta("more", 1))
    with pytest.raises(InternalError, match="after the completion"):
        list(client.stream("x"))


def test_failure_after_completion_is_ignored(fake: FakeShaperouter, client: Client) -> None:
    fake.script.append(fake.fail(grpc.StatusCode.UNAVAILABLE, "shutting down"))
    stream = client.stream("x")
    list(stream)
    assert stream.result.text == " a library"


def test_events_of_a_newer_service_are_skipped(fake: FakeShaperouter, client: Client) -> None:
    fake.script.insert(1, generation_pb2.GenerateStreamResponse())
    assert len(list(client.stream("x"))) == 2

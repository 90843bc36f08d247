"""Open Inference's generate extension over HTTP: a router in this process, and fake workers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest

from harness.fake_model import describe_encoder_decoder, describe_model
from shaperouter.v1 import generation_pb2
from shaperouter_service.edge.http import event_stream
from shaperouter_service.errors import DeadlyRequestError, OverloadedError

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Router

GENERATE = "/v2/models/tiny/generate"
TEXT = {"text_input": "A", "exclude_input_in_output": True}


async def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    lines = [line async for line in response.aiter_lines() if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_generate_takes_fields_and_answers_with_fields(
    http: Any, encode: Callable[[str], list[int]]
) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        worker.script = [worker.tokens(*encode(" family")), worker.completion()]
        asked = TEXT | {"id": "7", "max_tokens": 7, "parameters": {"stop_words": ["x"]}}
        response = await client.post(GENERATE, json=asked)
        assert response.json() == {
            "model_name": "tiny",
            "model_version": "1",
            "id": "7",
            "text_output": " family",
            "finish_reason": "length",
            "num_input_tokens": len(encode("A")),
            "num_output_tokens": len(encode(" family")),
        }
        (run,) = worker.requests
        assert run.options.max_new_tokens == 7

    http(scenario)


def test_generate_answers_without_a_source(http: Any, encode: Callable[[str], list[int]]) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        worker.models = [describe_encoder_decoder("tiny")]
        worker.script = [worker.tokens(*encode(" family")), worker.completion()]
        await worker.start()
        response = await client.post(GENERATE, json={"text_input": "A"})
        assert response.json()["text_output"] == " family"

    http(scenario, started=False)


@pytest.mark.parametrize("place", ["fields", "parameters", "sampling_parameters"])
def test_generate_takes_empty_words_for_none(http: Any, place: str) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        # As in NVIDIA's examples for TensorRT-LLM.
        words = {"bad_words": "", "stop_words": ""}
        given = {
            "fields": words,
            "parameters": {"parameters": words},
            "sampling_parameters": {"sampling_parameters": json.dumps(words)},
        }
        response = await client.post(GENERATE, json=TEXT | given[place])
        assert response.status_code == 200

    http(scenario)


@pytest.mark.parametrize("prompt", ["q", "qz", "qzx"])
def test_log_probabilities_of_a_prompt_are_a_list(
    http: Any, encode: Callable[[str], list[int]], prompt: str
) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        _, *scored = encode(prompt)
        assert len(scored) == len(prompt) - 1
        worker.script = [worker.scores(*scored), *worker.script] if scored else worker.script
        asked = TEXT | {"text_input": prompt, "prompt_logprobs": 0}
        body = (await client.post(GENERATE, json=asked)).json()
        assert body["prompt_logprobs"] == [-token / 4 for token in scored]

    http(scenario)


def test_several_sequences_are_a_list(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        body = (await client.post(GENERATE, json=TEXT | {"n": 2, "do_sample": True})).json()
        assert [len(body[name]) for name in ("text_output", "finish_reason")] == [2, 2]

    http(scenario)


def test_there_may_be_several_sequences_by_the_checkpoints_default(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        model = describe_model("tiny")
        model.default_options.MergeFrom(
            generation_pb2.GenerationOptions(do_sample=True, num_return_sequences=2)
        )
        worker.models = [model]
        await worker.change()
        while True:
            body = (await client.post(GENERATE, json=TEXT)).json()
            if isinstance(body["text_output"], list):
                break
        assert len(body["text_output"]) == 2

    http(scenario)


def test_generate_stream_sends_each_piece_as_an_event(
    http: Any, encode: Callable[[str], list[int]]
) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        worker.script = [
            worker.tokens(*encode(" family")),
            worker.tokens(*encode(" of")),
            worker.completion(),
        ]
        asked = {"text_input": "A", "stream": True}
        async with client.stream("POST", f"{GENERATE}_stream", json=asked) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            events = await events_of(response)
        assert "".join(event["text_output"] for event in events) == " family of"
        assert len(events) > 2
        assert events[0].keys() == {"model_name", "model_version", "text_output"}
        assert events[-1]["num_output_tokens"] == len(encode(" family of"))

    http(scenario)


def test_a_stream_of_one_answer_has_one_event(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        whole = (await client.post(GENERATE, json=TEXT)).json()
        async with client.stream("POST", f"{GENERATE}_stream", json=TEXT) as response:
            assert await events_of(response) == [whole]

    http(scenario)


def test_a_stream_that_waits_sends_comments(http: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "PING", 0.02)

    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        worker.script = [worker.stall(), worker.hold, *worker.script]
        asked = TEXT | {"stream": True}
        async with client.stream("POST", f"{GENERATE}_stream", json=asked) as response:
            async for line in response.aiter_lines():
                if line.startswith(": ping"):
                    worker.released.set()
                if line.startswith("data: "):
                    break
            assert worker.released.is_set()

    http(scenario)


def test_an_error_is_a_status_before_the_first_event_and_an_event_after_it(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        stream, asked = f"{GENERATE}_stream", TEXT | {"stream": True}
        script, worker.script = worker.script, [OverloadedError("tiny", 4.5, 1.0)]
        response = await client.post(stream, json=asked)
        assert (response.status_code, response.headers["retry-after"]) == (429, "4")
        assert "tiny" in response.json()["error"]
        worker.script = [script[0], DeadlyRequestError("r", lost=3, isolated=2)]
        async with client.stream("POST", stream, json=asked) as response:
            *_, last = await events_of(response)
        assert last.keys() == {"error"}
        # The end of a stream has no headers to say when to try again.
        worker.script = [script[0], OverloadedError("tiny", 4.5, 1.0)]
        async with client.stream("POST", stream, json=asked) as response:
            *_, last = await events_of(response)
        assert last["retry_after"] == 3.5

    http(scenario)

"""OpenAI's API over HTTP, in front of scripted workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest

from harness.waiting import TIMEOUT
from shaperouter.v1 import generation_pb2
from shaperouter_service.auth import token_digest
from shaperouter_service.edge.http import event_stream, server
from shaperouter_service.errors import DeadlyRequestError, OverloadedError

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Router

Until = Callable[[Callable[[], bool]], Awaitable[None]]
Scenario = Callable[..., Awaitable[None]]

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PROMPT = {"model": "tiny", "prompt": "hello", "temperature": 0}


def error_of(response: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    return error


async def events_of(response: httpx.Response) -> list[Any]:
    """The events of a stream, of which the last must say that it is the last."""
    lines = [line async for line in response.aiter_lines() if line.startswith("data: ")]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_a_completion_is_what_the_worker_generated(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, router: Router, worker: FakeWorker) -> None:
        response = await client.post(COMPLETIONS, json=PROMPT | {"max_tokens": 3})
        assert response.status_code == 200
        body = response.json()
        (choice,) = body["choices"]
        assert (choice["index"], choice["finish_reason"]) == (0, "length")
        expected = await router.generate(text="hello")
        assert choice["text"] == expected.sequences[0].text
        assert body["usage"]["completion_tokens"] == 3
        assert worker.requests[0].options.max_new_tokens == 3
        assert not worker.requests[0].options.do_sample

    http(scenario)


@pytest.mark.parametrize("zero", ["temperature", "top_p"])
def test_a_temperature_or_top_p_of_zero_is_greedy(http: Any, zero: str) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        asked = PROMPT | {"temperature": 0.7, "top_p": 0.9, zero: 0}
        assert (await client.post(COMPLETIONS, json=asked)).status_code == 200
        assert not worker.requests[0].options.do_sample

    http(scenario)


def test_a_top_k_of_minus_one_is_all_tokens(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        asked = PROMPT | {"temperature": 0.7, "top_k": -1}
        assert (await client.post(COMPLETIONS, json=asked)).status_code == 200
        assert worker.requests[0].options.top_k == 0

    http(scenario)


@pytest.mark.parametrize(("seed", "used"), [(-1, 2**63 - 1), (-(2**63), 0), (7, 7)])
def test_a_negative_seed_is_taken_modulo_two_to_the_63(http: Any, seed: int, used: int) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        response = await client.post(COMPLETIONS, json=PROMPT | {"seed": seed, "temperature": 1})
        assert response.status_code == 200
        assert worker.requests[0].options.seed == used

    http(scenario)


def test_a_stream_has_the_text_of_the_whole_answer(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        whole = (await client.post(COMPLETIONS, json=PROMPT)).json()
        usage = {"stream_options": {"include_usage": True}}
        async with client.stream(
            "POST", COMPLETIONS, json=PROMPT | {"stream": True} | usage
        ) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            *pieces, total = await events_of(response)
        texts = [piece["choices"][0]["text"] for piece in pieces]
        assert "".join(texts) == whole["choices"][0]["text"]
        assert pieces[-1]["choices"][0]["finish_reason"] == "length"
        assert (total["choices"], total["usage"]) == ([], whole["usage"])

    http(scenario)


def test_a_stream_counts_along_if_it_is_asked_to(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        usage = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
        asked = PROMPT | {"stream": True, "n": 2, "temperature": None} | usage
        async with client.stream("POST", COMPLETIONS, json=asked) as response:
            *pieces, total = await events_of(response)
        counts = [piece["usage"]["completion_tokens"] for piece in pieces]
        assert counts == sorted(counts)
        assert len(set(counts)) > 2
        assert pieces[-1]["usage"] == total["usage"]

    http(scenario)


def test_the_end_token_can_be_ignored(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        await client.post(COMPLETIONS, json=PROMPT | {"ignore_eos": True})
        await client.post(COMPLETIONS, json=PROMPT | {"ignore_eos": False})
        assert [list(run.options.eos_token_ids) for run in worker.requests] == [[], [0]]

    http(scenario)


def test_each_prompt_and_sequence_is_a_choice(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        asked = {"model": "tiny", "prompt": ["a", "b", [1, 2]], "n": 2}
        body = (await client.post(COMPLETIONS, json=asked)).json()
        assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3, 4, 5]
        assert body["usage"]["completion_tokens"] == 18
        assert len({run.request_id for run in worker.requests}) == 6
        async with client.stream("POST", COMPLETIONS, json=asked | {"stream": True}) as response:
            ends = [
                choice["index"]
                for piece in await events_of(response)
                for choice in piece["choices"]
                if choice["finish_reason"]
            ]
        assert sorted(ends) == [0, 1, 2, 3, 4, 5]

    http(scenario)


@pytest.mark.parametrize("prompt", ["hello", [1, 2]])
def test_log_probabilities_of_completions_are_lists(http: Any, prompt: Any) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        body = (
            await client.post(COMPLETIONS, json=PROMPT | {"prompt": prompt, "logprobs": 2})
        ).json()
        found = body["choices"][0]["logprobs"]
        assert found["token_logprobs"] == [-1.25, -1.75, -2.0]
        assert [len(found[name]) for name in ("tokens", "text_offset", "top_logprobs")] == [3] * 3

    http(scenario)


@pytest.mark.parametrize(
    ("count", "others"), [(0, []), (2, [0.0, -0.25]), (6, [0.0, -0.25, -0.5, -0.75, -1.0])]
)
def test_the_likeliest_tokens_of_completions_include_the_sampled_one(
    http: Any, count: int, others: list[float]
) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        body = (await client.post(COMPLETIONS, json=PROMPT | {"logprobs": count})).json()
        found = body["choices"][0]["logprobs"]
        first = found["top_logprobs"][0]
        assert first[found["tokens"][0]] == -1.25
        assert list(first.values()) == [*others, -1.25]

    http(scenario)


SCORED = {"prompt": [5, 7, 3], "echo": True, "logprobs": 0}


def _scores(worker: FakeWorker) -> None:
    worker.script = [worker.scores(7), worker.scores(3), *worker.script]


def test_log_probabilities_of_a_prompt_precede_those_of_its_completion(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        _scores(worker)
        (choice,) = (await client.post(COMPLETIONS, json=PROMPT | SCORED)).json()["choices"]
        found = choice["logprobs"]
        assert found["token_logprobs"] == [None, -1.75, -0.75, -1.25, -1.75, -2.0]
        assert found["top_logprobs"][0] is None
        assert found["top_logprobs"][1:] == [
            {token: logprob}
            for token, logprob in zip(found["tokens"][1:], found["token_logprobs"][1:], strict=True)
        ]

    http(scenario)


@pytest.mark.parametrize("streams", [False, True])
def test_offsets_of_tokens_are_positions_in_the_text(
    http: Any, encode: Callable[[str], Sequence[int]], *, streams: bool
) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        prompt, text = encode("𝄞 "), encode("x 𝄞.")
        end = worker.script[-1]
        worker.script = [worker.scores(*prompt[1:]), *map(worker.tokens, text), end]
        asked = PROMPT | {"prompt": "𝄞 ", "echo": True, "logprobs": 0, "stream": streams}
        response = await client.post(COMPLETIONS, json=asked)
        bodies = await events_of(response) if streams else [response.json()]
        choices = [body["choices"][0] for body in bodies]
        assert "".join(choice["text"] for choice in choices) == "𝄞 x 𝄞."
        lists = [choice["logprobs"] for choice in choices if choice["logprobs"]]
        offsets = [offset for found in lists for offset in found["text_offset"]]
        # The bytes of the clef are tokens of their own.
        assert offsets == [0, 0, 0, 0, 1, 2, 3, 4, 4, 4, 4, 5]

    http(scenario)


def test_a_stream_has_the_log_probabilities_of_the_whole_answer(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        _scores(worker)
        asked = PROMPT | SCORED | {"n": 2, "temperature": 1}
        whole = (await client.post(COMPLETIONS, json=asked)).json()["choices"]
        async with client.stream("POST", COMPLETIONS, json=asked | {"stream": True}) as response:
            pieces = [piece["choices"][0] for piece in await events_of(response)]
        for choice in whole:
            of_choice = [piece for piece in pieces if piece["index"] == choice["index"]]
            assert "".join(piece["text"] for piece in of_choice) == choice["text"]
            for name, expected in choice["logprobs"].items():
                parts = [piece["logprobs"][name] for piece in of_choice if piece["logprobs"]]
                assert [each for part in parts for each in part] == expected

    http(scenario)


@pytest.mark.parametrize("prompt", [[5, 7, 3], [5]])
def test_a_prompt_is_scored_without_new_tokens(http: Any, prompt: list[int]) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        if len(prompt) > 1:
            _scores(worker)
        asked = PROMPT | SCORED | {"prompt": prompt, "max_tokens": 0}
        body = (await client.post(COMPLETIONS, json=asked)).json()
        (choice,) = body["choices"]
        expected = [None, -1.75, -0.75][: len(prompt)]
        assert choice["logprobs"]["token_logprobs"] == expected
        assert (choice["finish_reason"], body["usage"]["completion_tokens"]) == ("length", 0)

    http(scenario)


@pytest.fixture
def template(checkpoint: Path) -> Any:
    """Gives the model a chat template."""
    path = checkpoint / "chat_template.jinja"
    path.write_text("{% for each in messages %}{{ each.role }}: {{ each.content }}|{% endfor %}")
    yield
    path.unlink()


HELLO = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "temperature": 0}


@pytest.mark.usefixtures("template")
def test_a_chat_completion_is_a_message(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        asked = HELLO | {"logprobs": True, "top_logprobs": 1}
        body = (await client.post(CHAT, json=asked)).json()
        (choice,) = body["choices"]
        assert choice["message"]["role"] == "assistant"
        first = choice["logprobs"]["content"][0]
        assert (first["logprob"], len(first["top_logprobs"])) == (-1.25, 1)
        async with client.stream("POST", CHAT, json=HELLO | {"stream": True}) as response:
            pieces = [piece["choices"][0] for piece in await events_of(response)]
        assert pieces[0]["delta"] == {"role": "assistant", "content": ""}
        text = "".join(piece["delta"].get("content", "") for piece in pieces)
        assert text == choice["message"]["content"]
        assert pieces[-1]["finish_reason"] == "length"

    http(scenario)


@pytest.mark.parametrize(
    "response_format",
    [
        {"type": "json_object"},
        {
            "type": "json_schema",
            "json_schema": {"name": "a", "strict": True, "schema": {"type": "array"}},
        },
    ],
)
def test_a_response_format_constrains_the_text(http: Any, response_format: dict[str, Any]) -> None:
    async def scenario(client: httpx.AsyncClient, router: Router, worker: FakeWorker) -> None:
        body = PROMPT | {"response_format": response_format}
        assert (await client.post(COMPLETIONS, json=body)).status_code == 200
        schema = response_format.get("json_schema", {}).get("schema", {"type": "object"})
        options = generation_pb2.GenerationOptions(json_schema=json.dumps(schema))
        await router.generate(text="hello", options=options)
        over_http, over_grpc = (request.grammar for request in worker.requests)
        assert over_http == over_grpc != ""

    http(scenario)


def test_models_are_listed(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        listed = (await client.get("/v1/models")).json()
        assert [model["id"] for model in listed["data"]] == ["tiny"]
        assert (await client.get("/v1/models/tiny")).json() == listed["data"][0]
        assert (await client.get("/health")).json() == {"status": "ready"}

    http(scenario)


@pytest.mark.parametrize("streams", [False, True])
def test_a_caller_who_leaves_frees_the_slot(http: Any, until: Until, *, streams: bool) -> None:
    async def scenario(client: httpx.AsyncClient, router: Router, worker: FakeWorker) -> None:
        worker.script.insert(1 if streams else 0, worker.hold)
        if streams:
            asked = PROMPT | {"stream": True}
            async with client.stream("POST", COMPLETIONS, json=asked) as response:
                await anext(response.aiter_lines())
        else:
            call = asyncio.ensure_future(client.post(COMPLETIONS, json=PROMPT))
            await until(lambda: worker.running == 1)
            call.cancel()
        await until(lambda: worker.cancelled == 1)
        name, labels = "http_server_requests_total", {"method": "POST", "path": COMPLETIONS}
        status = {"status": "200" if streams else "499"}
        await until(lambda: router.registry.get_sample_value(name, labels | status) == 1)

    http(scenario)


def test_an_error_before_the_first_event_is_a_status(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        worker.script = [OverloadedError("tiny", 4.5, 1.0)]
        response = await client.post(COMPLETIONS, json=PROMPT | {"stream": True})
        assert response.status_code == 429
        assert response.headers["retry-after"] == "4"
        assert response.headers["retry-after-ms"] == "3500"
        assert error_of(response)["type"] == "rate_limit_error"

    http(scenario)


def test_an_error_within_a_stream_is_its_last_event(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        worker.script[1:] = [DeadlyRequestError("r", lost=3, isolated=2)]
        async with client.stream("POST", COMPLETIONS, json=PROMPT | {"stream": True}) as response:
            lines = [line async for line in response.aiter_lines() if line.startswith("data: ")]
        *_, last = (json.loads(line.removeprefix("data: ")) for line in lines)
        assert last["error"]["code"] == "deadly_request"

    http(scenario)


@pytest.mark.parametrize("stalls", [True, False], ids=["for a graph", "for its first piece"])
def test_a_stream_that_waits_sends_comments(
    http: Any, monkeypatch: pytest.MonkeyPatch, *, stalls: bool
) -> None:
    monkeypatch.setattr(event_stream, "PING", 0.02)

    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        worker.script = [*[worker.stall()] * stalls, worker.hold, *worker.script]
        async with client.stream("POST", COMPLETIONS, json=PROMPT | {"stream": True}) as response:
            lines = response.aiter_lines()
            while not (await anext(lines)).startswith(": ping"):
                pass
            worker.released.set()
            rest = [line async for line in lines]
        assert "data: [DONE]" in rest

    http(scenario)


def test_a_stream_that_ends_its_connection_says_only_that(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        asked = PROMPT | {"stream": True}
        response = await client.post(COMPLETIONS, json=asked, headers={"connection": "close"})
        assert response.headers.get_list("connection") == ["close"]

    http(scenario)


def test_an_error_after_a_long_wait_is_an_event(http: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "PING", 0.02)

    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        worker.script = [worker.hold, DeadlyRequestError("r", lost=3, isolated=2)]
        async with client.stream("POST", COMPLETIONS, json=PROMPT | {"stream": True}) as response:
            assert response.status_code == 200
            lines = response.aiter_lines()
            while not (await anext(lines)).startswith(": ping"):
                pass
            worker.released.set()
            rest = [line async for line in lines if line.startswith("data: ")]
        assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "deadly_request"

    http(scenario)


def test_answers_and_errors_have_the_id_of_the_request(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        given = await client.post(COMPLETIONS, json=PROMPT, headers={"x-request-id": "mine-1"})
        assert given.headers["x-request-id"] == "mine-1"
        assert given.json()["id"].startswith("cmpl-mine-1-")
        made = await client.post(COMPLETIONS, json={}, headers={"x-request-id": "not usable"})
        assert len(made.headers["x-request-id"]) == 32
        # Callers may use theirs again while the first call runs.
        again = await client.post(COMPLETIONS, json=PROMPT, headers={"x-request-id": "mine-1"})
        assert again.json()["id"] != given.json()["id"]

    http(scenario)


def test_tokens_and_limits_are_those_of_every_door(http: Any, until: Until, tmp_path: Path) -> None:
    path, token = tmp_path / "tokens.toml", "a-secret-token"
    path.write_text(f"[clients.team]\nsha256 = ['{token_digest(token)}']\nmax_requests = 1\n")

    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        for headers in ({}, {"authorization": "Bearer wrong"}):
            refused = await client.post(COMPLETIONS, json=PROMPT, headers=headers)
            assert refused.status_code == 401
            assert error_of(refused)["code"] == "invalid_api_key"
        headers = {"authorization": f"Bearer {token}"}
        worker.script.insert(0, worker.hold)
        first = asyncio.ensure_future(client.post(COMPLETIONS, json=PROMPT, headers=headers))
        await until(lambda: worker.running == 1)
        second = await client.post(COMPLETIONS, json=PROMPT, headers=headers)
        assert (second.status_code, error_of(second)["code"]) == (429, "client_limit")
        worker.released.set()
        assert (await first).status_code == 200
        # Probes have no token.
        assert (await client.get("/health")).status_code == 200

    http(scenario, settings={"tokens": path})


@pytest.mark.parametrize("streams", [False, True])
def test_each_prompt_of_a_completion_counts_against_the_limits(
    http: Any, until: Until, tmp_path: Path, streams: bool
) -> None:
    path, token = tmp_path / "tokens.toml", "a-secret-token"
    path.write_text(f"[clients.team]\nsha256 = ['{token_digest(token)}']\nmax_requests = 2\n")

    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        headers = {"authorization": f"Bearer {token}"}

        async def ask(prompts: int) -> httpx.Response:
            asked = PROMPT | {"prompt": ["TensorFlow"] * prompts, "stream": streams}
            return await client.post(COMPLETIONS, json=asked, headers=headers)

        never = await ask(3)
        assert (never.status_code, error_of(never)["param"]) == (400, "prompt")
        assert "at most 2 prompts" in error_of(never)["message"]
        assert (await ask(2)).status_code == 200
        worker.script.insert(0, worker.hold)
        first = asyncio.ensure_future(ask(1))
        await until(lambda: worker.running == 1)
        full = await ask(2)
        assert (full.status_code, error_of(full)["code"]) == (429, "client_limit")
        worker.released.set()
        assert (await first).status_code == 200
        # All have given back what they had.
        assert (await ask(2)).status_code == 200

    http(scenario, settings={"tokens": path})


def test_a_router_that_stops_finishes_and_refuses(http: Any, until: Until) -> None:
    async def scenario(client: httpx.AsyncClient, router: Router, worker: FakeWorker) -> None:
        worker.script.insert(0, worker.hold)
        running = asyncio.ensure_future(client.post(COMPLETIONS, json=PROMPT))
        await until(lambda: worker.running == 1)
        router.stop.set()

        async def refused() -> httpx.Response:
            while (response := await client.get("/health")).status_code == 200:
                pass
            del response
            return await client.post(COMPLETIONS, json=PROMPT)

        response = await refused()
        assert (response.status_code, error_of(response)["code"]) == (503, "stopping")
        worker.released.set()
        assert (await running).status_code == 200

    http(scenario, grace=TIMEOUT)


def test_a_stream_that_outlasts_the_grace_of_a_stop_ends_with_the_error(
    http: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_FLUSH", 0.1)

    async def scenario(client: Any, router: Router, worker: FakeWorker) -> None:
        worker.script = [worker.tokens(5), worker.hold]
        async with client.stream("POST", COMPLETIONS, json=PROMPT | {"stream": True}) as response:
            lines = [
                line
                async for line in _stopping_at_the_first(response.aiter_lines(), router)
                if line.startswith("data: ")
            ]
        error = json.loads(lines[-1].removeprefix("data: "))["error"]
        assert "the service is being stopped" in error["message"]
        assert error["retry_after"] == 0.5

    http(scenario)


async def _stopping_at_the_first(lines: AsyncIterator[str], router: Router) -> AsyncIterator[str]:
    async for line in lines:
        router.stop.set()
        yield line

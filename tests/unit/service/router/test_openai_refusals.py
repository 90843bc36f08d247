"""What OpenAI's API refuses before a worker gets it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest

from shaperouter_service.edge.http import bodies

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Router

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
SAID = {"role": "user", "content": "hello"}
PROMPT = {"model": "tiny", "prompt": "hello", "temperature": 0}
JSON = {"content-type": "application/json"}


def error_of(response: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    return error


@pytest.mark.parametrize(
    ("path", "changes", "param", "told"),
    [
        (COMPLETIONS, {"model": None}, "model", "is required"),
        (COMPLETIONS, {"prompt": None}, "prompt", "is required"),
        (COMPLETIONS, {"prompt": 3}, "prompt", "must be a text or a list of token ids, got 3"),
        (COMPLETIONS, {"prompt": []}, "prompt", "must have from 1 to 256 prompts, got 0"),
        (COMPLETIONS, {"prompt": ["a", 2.5]}, "prompt[1]", "got 2.5"),
        (COMPLETIONS, {"prompt": [1, 2**40]}, "prompt[0]", "must be a text or a list"),
        (COMPLETIONS, {"prompt": [1, -2]}, "prompt[1]", "must be from 0 to"),
        (COMPLETIONS, {"prompt": [[1, -2]]}, "prompt[0][1]", "must be from 0 to"),
        (COMPLETIONS, {"suffix": "x"}, "suffix", "is not supported, got 'x'"),
        (COMPLETIONS, {"best_of": 3}, "best_of", "must be n, 1, got 3"),
        (COMPLETIONS, {"prompt_logprobs": 1}, "prompt_logprobs", "with echo and logprobs"),
        (COMPLETIONS, {"echo": True, "logprobs": 21}, "logprobs", "from 0 to 20, got 21"),
        (COMPLETIONS, {"unheard": 1}, "unheard", "is unknown"),
        (COMPLETIONS, {"max_tokens": "9"}, "max_tokens", "must not be a text, got '9'"),
        (COMPLETIONS, {"max_tokens": 0}, "max_tokens", "at least 1 without both echo and logprobs"),
        (CHAT, {"prompt": None, "messages": [SAID], "max_tokens": 0}, "max_tokens", "1, got 0"),
        (CHAT, {"prompt": None, "messages": [{"role": "user"}]}, "messages[0].content", "required"),
        (COMPLETIONS, {"max_tokens": -1}, "max_tokens", "must be at least 0, got -1"),
        (COMPLETIONS, {"top_p": 7}, "top_p", "got 7"),
        (
            COMPLETIONS,
            {"max_tokens": 2**31},
            "max_tokens",
            "must be from 0 to 2147483647, got 2147483648",
        ),
        (COMPLETIONS, {"seed": -(2**63) - 1}, "seed", "must be from -9223372036854775808 to 922"),
        (COMPLETIONS, {"seed": 2**63}, "seed", "to 9223372036854775807, got 9223372036854775808"),
        (COMPLETIONS, {"temperature": -1}, "temperature", "(0 means greedy decoding), got -1"),
        (COMPLETIONS, {"presence_penalty": 1}, "presence_penalty", "use repetition_penalty"),
        (COMPLETIONS, {"logit_bias": {"x": 1}}, "logit_bias", "must be an object of numbers"),
        (
            COMPLETIONS,
            {"stream_options": {"include_usage": 3}},
            "stream_options.include_usage",
            "must be true",
        ),
        (COMPLETIONS, {"stream_options": {"x": 3}}, "stream_options.x", "is unknown"),
        (
            COMPLETIONS,
            {"stream_options": {"continuous_usage_stats": True}},
            "stream_options.continuous_usage_stats",
            "needs include_usage true",
        ),
        (
            COMPLETIONS,
            {"ignore_eos": True, "eos_token_ids": [3]},
            "ignore_eos",
            "must not be set together with eos_token_ids",
        ),
        (CHAT, {"prompt": None}, "messages", "must have at least one message"),
        (CHAT, {"prompt": None, "messages": "x"}, "messages", "must be a list of objects"),
        (CHAT, {"prompt": None, "messages": [SAID], "tools": [1]}, "tools", "list of objects"),
        (
            COMPLETIONS,
            {"response_format": {"type": "xml"}},
            "response_format.type",
            "must be 'text', 'json_object' or 'json_schema', got 'xml'",
        ),
        (
            COMPLETIONS,
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "x": 1}}},
            "response_format.json_schema.x",
            "is unknown",
        ),
        (
            COMPLETIONS,
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
            "response_format.json_schema.schema",
            "is required with type 'json_schema'",
        ),
        (
            COMPLETIONS,
            {"response_format": {"type": "json_schema"}},
            "response_format.json_schema",
            "is required with type 'json_schema'",
        ),
        (
            COMPLETIONS,
            {"response_format": {}},
            "response_format.type",
            "or 'json_schema', got none",
        ),
        (COMPLETIONS, {"response_format": "text"}, "response_format", "must be an object"),
        (
            COMPLETIONS,
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a", "schema": {"items": {"type": "real"}}},
                }
            },
            "response_format.json_schema.schema.items",
            "Invalid type: real",
        ),
        (COMPLETIONS, {"regex": "a", "choices": ["a"]}, "choices", "must not be set with regex"),
        (
            CHAT,
            {"prompt": None, "messages": [SAID], "tool_choice": "required"},
            "tool_choice",
            "must not be 'required' without tools",
        ),
    ],
)
def test_fields_that_cannot_be_used_are_refused(
    http: Any, path: str, changes: dict[str, Any], param: str, told: str
) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        for streams in (False, True):
            response = await client.post(path, json=PROMPT | changes | {"stream": streams})
            assert response.status_code == 400
            error = error_of(response)
            assert (error["type"], error["param"]) == ("invalid_request_error", param)
            assert told in error["message"]
        assert not worker.requests

    http(scenario)


@pytest.mark.parametrize(
    ("content", "headers", "status", "told"),
    [
        (b"{", JSON, 400, "must be JSON"),
        (b"[1]", JSON, 400, "must be a JSON object, got [1]"),
        (b'{"model": "a", "model": "b"}', JSON, 400, "'model' occurs twice"),
        (b'{"temperature": NaN}', JSON, 400, "numbers must be finite, got NaN"),
        (b'{"n": ' + b"9" * 5000 + b"}", JSON, 400, "must be JSON"),
        (b'{"prompt": "\xff"}', JSON, 400, "must be JSON"),
        (b"[" * 10**5, JSON, 400, "must be JSON"),
        (b"{}", {"content-type": "text/plain"}, 415, "must be application/json, got 'text/plain'"),
        (b" " * 10**7, JSON, 413, "must have at most"),
    ],
)
def test_bodies_that_are_no_request_are_refused(
    http: Any, content: bytes, headers: dict[str, str], status: int, told: str
) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        response = await client.post(COMPLETIONS, content=content, headers=headers)
        assert response.status_code == status
        assert told in error_of(response)["message"]

    http(scenario)


def test_a_body_without_an_announced_length_has_the_same_limit(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        async def parts() -> Any:
            for _ in range(200):
                yield b" " * 2**16

        response = await client.post(COMPLETIONS, content=parts(), headers=JSON)
        assert response.status_code == 413

    http(scenario)


@pytest.mark.parametrize("changes", [{"prompt": "graphs " * 9000}, {"max_tokens": 9000}])
def test_what_the_length_of_a_model_has_no_room_for_has_openais_code(
    http: Any, changes: dict[str, Any]
) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        response = await client.post(COMPLETIONS, json=PROMPT | changes)
        assert response.status_code == 400
        assert error_of(response)["code"] == "context_length_exceeded"

    http(scenario)


def test_a_body_that_does_not_arrive_is_given_up(
    http: Any, sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.05)

    async def scenario(*_: Any) -> None:
        reader, writer = await asyncio.open_unix_connection(sockets / "http")
        head = f"POST {COMPLETIONS} HTTP/1.1\r\nhost: r\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: 100\r\n\r\n{{".encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        writer.close()

    http(scenario)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404),
        ("GET", COMPLETIONS, 405),
        ("GET", "/v1/models/nope", 404),
        ("GET", "/v1/models/", 404),
        ("POST", f"{COMPLETIONS}/", 404),
    ],
)
def test_what_does_not_exist_is_told_in_openais_form(
    http: Any, method: str, path: str, status: int
) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        response = await client.request(method, path)
        assert response.status_code == status
        assert error_of(response)["type"] == "invalid_request_error"

    http(scenario)

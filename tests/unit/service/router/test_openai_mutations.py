"""Mutated requests over HTTP: each is answered or refused, and the router goes on."""

from __future__ import annotations

import asyncio
import collections
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

COUNT = int(os.environ.get("FUZZ_REQUESTS", "400"))
# Seconds to wait for an answer to a request that may be incomplete.
PATIENCE = 0.05
# Of a model that calls tools, and reads all fields of messages.
TEMPLATE = """{# <tool_call> #}{{ tools }}{{ enable_thinking }}
{%- for message in messages %}{{ message.role + message.content }}{{ message.tool_calls }}
{%- endfor %}"""
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {}}}
BODIES: list[tuple[str, dict[str, Any]]] = [
    (
        "/v1/completions",
        {"model": "tiny", "prompt": ["a", [1, 2]], "n": 2, "seed": 3, "logprobs": 2, "stop": "x"},
    ),
    ("/v1/completions", {"model": "tiny", "prompt": "a", "stream": True, "logit_bias": {"3": 1}}),
    (
        "/v1/chat/completions",
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "hello"}],
            "tools": [TOOL],
            "tool_choice": "auto",
            "parallel_tool_calls": False,
            "stream_options": {"include_usage": True},
            "top_p": 0.5,
        },
    ),
    (
        "/v1/responses",
        {
            "model": "tiny",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
                {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "x"},
            ],
            "instructions": "brief",
            "tools": [TOOL["function"] | {"type": "function"}],
            "reasoning": {},
            "text": {"format": {"type": "text"}},
            "max_output_tokens": 3,
        },
    ),
    ("/v1/responses", {"model": "tiny", "input": "hello", "stream": True}),
]
VALUES: list[Any] = [
    None, True, -1, 0, 2**31, 2**63, 1e308, -0.5, "", "x" * 300, "\ud800", [], {}, [None], [[]],
    [{}], {"a": {"b": []}}, [1, "a"], [[1], [2**40]], "tiny",
]  # fmt: skip
HEADERS = [
    b"content-length: 7", b"content-length: -1", b"content-length: 99999999", b"expect: 1",
    b"transfer-encoding: chunked", b"transfer-encoding: gzip", b"content-type: text/html",
    b"authorization: Bearer \xff", b"x-request-id: " + b"i" * 5000, b"traceparent: 00-x",
    b"connection: upgrade", b"host:", b"x-client-id: \x80", b": empty", b"a" * 70_000 + b": b",
]  # fmt: skip


def replace_value(body: Any, name: Any, source: random.Random) -> None:
    """Replaces a value, or one somewhere within it, without changing the value itself."""
    inner = body.get(name) if isinstance(body, dict) else body[name]
    if not isinstance(inner, dict | list) or not inner or source.random() < 0.4:
        body[name] = source.choice(VALUES)
        return
    body[name] = inner.copy()
    keys = list(inner) if isinstance(inner, dict) else range(len(inner))
    replace_value(body[name], source.choice(keys), source)


def mutated(source: random.Random) -> bytes:
    """A request with a few changes of its values, its header or its bytes."""
    path, body = source.choice(BODIES)
    body = dict(body)
    for _ in range(source.randrange(3)):
        name = source.choice([*body, "unheard", "temperature", "best_of", "num_beams"])
        replace_value(body, name, source)
    content = json.dumps(body).encode()
    method = source.choice([b"POST"] * 8 + [b"GET", b"PUT", b"\x00"])
    lines = [method + b" " + path.encode() + b" HTTP/1.1", b"host: router"]
    lines += [b"content-type: application/json", b"content-length: %d" % len(content)]
    for _ in range(source.choice([0, 0, 0, 1, 2])):
        lines.insert(source.randrange(1, len(lines) + 1), source.choice(HEADERS))
    whole = bytearray(b"\r\n".join(lines) + b"\r\n\r\n" + content)
    for _ in range(source.choice([0, 0, 0, 1, 4])):
        place = source.randrange(len(whole))
        whole[place : place + source.randrange(4)] = source.randbytes(source.randrange(4))
    return bytes(whole)


async def status_of(path: Path, request: bytes) -> int:
    """The status of the answer to a request; 0 if it is closed, or waits for more of it."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(request)
        line = await asyncio.wait_for(reader.readline(), PATIENCE)
        return int(line.split()[1]) if line else 0
    except (TimeoutError, ConnectionError):
        return 0
    finally:
        writer.close()


@pytest.fixture
def template(checkpoint: Path) -> Iterator[None]:
    """Gives the model a chat template."""
    path = checkpoint / "chat_template.jinja"
    path.write_text(TEMPLATE)
    yield
    path.unlink()


@pytest.mark.usefixtures("template")
def test_mutated_requests_find_no_defect(play: Play, sockets: Path) -> None:
    path = sockets / "http"
    seed = random.randrange(2**32)

    async def scenario(router: Router, worker: FakeWorker) -> None:
        source = random.Random(seed)
        found: collections.Counter[int] = collections.Counter()
        for _ in range(COUNT):
            request = mutated(source)
            status = await status_of(path, request)
            found[status] += 1
            assert status < 500, (seed, request)
        assert {200, 400} <= found.keys(), (seed, found)
        body = json.dumps({"model": "tiny", "prompt": "a"}).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nhost: r\r\ncontent-type: application/json\r\n"
        whole = head + b"content-length: %d\r\n\r\n" % len(body) + body
        assert await status_of(path, whole) == 200
        assert (await router.generate()).sequences

    play(scenario, settings={"http_listen": f"unix:{path}"}, patience=30 + COUNT * PATIENCE)


def test_a_thousand_idle_connections_keep_nobody_out(play: Play, sockets: Path) -> None:
    path = sockets / "http"

    async def scenario(router: Router, worker: FakeWorker) -> None:
        idle = [await asyncio.open_unix_connection(path) for _ in range(1000)]
        assert await status_of(path, b"GET /health HTTP/1.1\r\nhost: r\r\n\r\n") == 200
        for _, writer in idle:
            writer.close()

    play(scenario, settings={"http_listen": f"unix:{path}"}, patience=60)

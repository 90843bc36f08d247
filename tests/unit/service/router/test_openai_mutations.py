"""Mutated requests over HTTP: each is answered or refused, and the router goes on."""

from __future__ import annotations

import asyncio
import collections
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.forms import FORM, form
from harness.http_mutation import (
    PATIENCE,
    WHOLE,
    mutated,
    mutated_bytes,
    request_of,
    status_of,
    with_other_values,
)
from harness.transcribing import tone, transcribes
from harness.whispers import wav

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

RECORDING = wav(tone(0.1))
COUNT = int(os.environ.get("FUZZ_REQUESTS", "400"))
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
NAMES = ["unheard", "temperature", "best_of", "num_beams"]
FORM_FIELDS = {
    "model": "tiny", "language": "en", "response_format": "verbose_json", "temperature": "0.5",
    "timestamp_granularities[]": "segment", "stream": "false", "seed": "7", "prompt": "a",
}  # fmt: skip
FORM_TEXTS = [
    "", "x" * 300, "-1", "2147483648", "9" * 5000, "1e308", "-inf", "nan", "true", "\ud800",
    "{}", "pcm_s16le", "text", "srt", "word", "0", "\x00",
]  # fmt: skip
FORM_NAMES = [
    *FORM_FIELDS, "unheard", "num_beams", "temperatures", "file", "audio_format", "sample_rate",
    "channels", "step_seconds", "best_of", "no_speech_threshold", "include[]", "[]", "",
]  # fmt: skip


def mutated_json(source: random.Random) -> bytes:
    """A request of JSON with a few changes of its values."""
    path, body = source.choice(BODIES)
    return mutated(source, path, with_other_values(source, body, NAMES))


def mutated_form(source: random.Random) -> bytes:
    """A request of a form with a few changes of its fields and of their order."""
    path = source.choice(["/v1/audio/transcriptions", "/v1/audio/translations"])
    texts = [
        (name, text.encode(errors="surrogatepass"))
        for name, text in [
            *FORM_FIELDS.items(),
            *(
                (source.choice(FORM_NAMES), source.choice(FORM_TEXTS))
                for _ in range(source.choice([0, 0, 1, 2]))
            ),
        ]
    ]
    for _ in range(source.choice([0, 0, 1, 2])):
        texts.pop(source.randrange(len(texts)))
    texts.insert(source.randrange(len(texts) + 1), ("file", RECORDING))
    headers = [f"content-type: {FORM['content-type']}".encode()]
    return mutated_bytes(source, path, form(*texts), headers=headers)


async def send_mutations(path: Path, mutation: Callable[[random.Random], bytes]) -> None:
    """Sends mutated requests; some must be refused, and none may fail."""
    seed = random.randrange(2**32)
    source = random.Random(seed)
    found: collections.Counter[int] = collections.Counter()
    for _ in range(COUNT):
        request = mutation(source)
        status = await status_of(path, request)
        found[status] += 1
        assert status < 500, (seed, request)
    # Answers may take longer than this waits for them.
    assert 400 in found, (seed, found)


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

    async def scenario(router: Router, worker: FakeWorker) -> None:
        await send_mutations(path, mutated_json)
        content = json.dumps({"model": "tiny", "prompt": "a"}).encode()
        whole = request_of("/v1/completions", content, headers=[b"content-type: application/json"])
        assert await status_of(path, whole, patience=WHOLE) == 200
        assert (await router.generate()).sequences

    play(scenario, settings={"http_listen": f"unix:{path}"}, patience=30 + COUNT * PATIENCE)


def test_mutated_forms_find_no_defect(play: Play, sockets: Path) -> None:
    path = sockets / "http"

    async def scenario(router: Router, worker: FakeWorker) -> None:
        await transcribes(worker)
        await send_mutations(path, mutated_form)
        content = form(("model", b"tiny"), ("file", RECORDING))
        headers = [f"content-type: {FORM['content-type']}".encode()]
        whole = request_of("/v1/audio/transcriptions", content, headers=headers)
        assert await status_of(path, whole, patience=WHOLE) == 200

    play(scenario, settings={"http_listen": f"unix:{path}"}, patience=30 + COUNT * PATIENCE)


def test_a_thousand_idle_connections_keep_nobody_out(play: Play, sockets: Path) -> None:
    path = sockets / "http"

    async def scenario(router: Router, worker: FakeWorker) -> None:
        idle = [await asyncio.open_unix_connection(path) for _ in range(1000)]
        health = b"GET /health HTTP/1.1\r\nhost: r\r\n\r\n"
        assert await status_of(path, health, patience=WHOLE) == 200
        for _, writer in idle:
            writer.close()

    play(scenario, settings={"http_listen": f"unix:{path}"}, patience=60)

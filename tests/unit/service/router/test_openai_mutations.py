"""Mutated requests over HTTP: each is answered or refused, and the router goes on."""

from __future__ import annotations

import asyncio
import collections
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.forms import FORM, form
from harness.transcribing import tone, transcribes
from harness.whispers import wav

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

RECORDING = wav(tone(0.1))
COUNT = int(os.environ.get("FUZZ_REQUESTS", "400"))
# Seconds to wait for an answer to a request that may be incomplete.
PATIENCE = 0.05
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
            "tools": [{"type": "function"}],
            "stream_options": {"include_usage": True},
            "top_p": 0.5,
        },
    ),
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
    body = dict(body)
    for _ in range(source.randrange(3)):
        name = source.choice([*body, "unheard", "temperature", "best_of", "num_beams"])
        body[name] = source.choice(VALUES)
    return mutated(source, path, "application/json", json.dumps(body).encode())


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
    return mutated(source, path, FORM["content-type"], form(*texts))


def mutated(source: random.Random, path: str, kind: str, content: bytes) -> bytes:
    """A request with a few changes of its header or its bytes."""
    method = source.choice([b"POST"] * 8 + [b"GET", b"PUT", b"\x00"])
    lines = [method + b" " + path.encode() + b" HTTP/1.1", b"host: router"]
    lines += [f"content-type: {kind}".encode(), b"content-length: %d" % len(content)]
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


async def send_mutations(path: Path, mutation: Callable[[random.Random], bytes]) -> None:
    """Sends mutated requests; some must be answered, some refused, and none may fail."""
    seed = random.randrange(2**32)
    source = random.Random(seed)
    found: collections.Counter[int] = collections.Counter()
    for _ in range(COUNT):
        request = mutation(source)
        status = await status_of(path, request)
        found[status] += 1
        assert status < 500, (seed, request)
    assert {200, 400} <= found.keys(), (seed, found)


def test_mutated_requests_find_no_defect(play: Play, sockets: Path) -> None:
    path = sockets / "http"

    async def scenario(router: Router, worker: FakeWorker) -> None:
        await send_mutations(path, mutated_json)
        body = json.dumps({"model": "tiny", "prompt": "a"}).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nhost: r\r\ncontent-type: application/json\r\n"
        whole = head + b"content-length: %d\r\n\r\n" % len(body) + body
        assert await status_of(path, whole) == 200
        assert (await router.generate()).sequences

    play(scenario, settings={"http_listen": f"unix:{path}"}, patience=30 + COUNT * PATIENCE)


def test_mutated_forms_find_no_defect(play: Play, sockets: Path) -> None:
    path = sockets / "http"

    async def scenario(router: Router, worker: FakeWorker) -> None:
        await transcribes(worker)
        await send_mutations(path, mutated_form)
        assert await status_of(path, b"GET /health HTTP/1.1\r\nhost: r\r\n\r\n") == 200

    play(scenario, settings={"http_listen": f"unix:{path}"}, patience=30 + COUNT * PATIENCE)


def test_a_thousand_idle_connections_keep_nobody_out(play: Play, sockets: Path) -> None:
    path = sockets / "http"

    async def scenario(router: Router, worker: FakeWorker) -> None:
        idle = [await asyncio.open_unix_connection(path) for _ in range(1000)]
        assert await status_of(path, b"GET /health HTTP/1.1\r\nhost: r\r\n\r\n") == 200
        for _, writer in idle:
            writer.close()

    play(scenario, settings={"http_listen": f"unix:{path}"}, patience=60)

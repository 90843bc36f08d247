"""Mutated requests over HTTP: each is answered or refused, and the router keeps serving."""

from __future__ import annotations

import asyncio
import collections
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.forms import FORM, form
from harness.http_mutation import PATIENCE, WHOLE, request_of, status_of
from harness.http_requests import RECORDING, TEMPLATE, mutated_form, mutated_json
from harness.transcribing import transcribes
from harness.waiting import TIMEOUT

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

COUNT = int(os.environ.get("FUZZ_REQUESTS", "400"))


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

    play(scenario, settings={"http_listen": f"unix:{path}"}, patience=TIMEOUT + COUNT * PATIENCE)


def test_mutated_forms_find_no_defect(play: Play, sockets: Path) -> None:
    path = sockets / "http"

    async def scenario(router: Router, worker: FakeWorker) -> None:
        await transcribes(worker)
        await send_mutations(path, mutated_form)
        content = form(("model", b"tiny"), ("file", RECORDING))
        headers = [f"content-type: {FORM['content-type']}".encode()]
        whole = request_of("/v1/audio/transcriptions", content, headers=headers)
        assert await status_of(path, whole, patience=WHOLE) == 200

    play(scenario, settings={"http_listen": f"unix:{path}"}, patience=TIMEOUT + COUNT * PATIENCE)


def test_a_thousand_idle_connections_keep_nobody_out(play: Play, sockets: Path) -> None:
    path = sockets / "http"

    async def scenario(router: Router, worker: FakeWorker) -> None:
        idle = [await asyncio.open_unix_connection(path) for _ in range(1000)]
        health = b"GET /health HTTP/1.1\r\nhost: r\r\n\r\n"
        assert await status_of(path, health, patience=WHOLE) == 200
        for _, writer in idle:
            writer.close()

    play(scenario, settings={"http_listen": f"unix:{path}"}, patience=TIMEOUT)

"""Mutated requests of Open Inference over HTTP: each is answered or refused."""

from __future__ import annotations

import collections
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

from harness.fake_model import describe_function
from harness.http_mutation import PATIENCE, status_of
from harness.http_requests import mutated_inference
from harness.waiting import TIMEOUT

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

COUNT = int(os.environ.get("FUZZ_REQUESTS", "300"))


def test_mutated_requests_find_no_defect(play: Play, sockets: Path) -> None:
    path = sockets / "http"
    seed = random.randrange(2**32)

    async def scenario(router: Router, worker: FakeWorker) -> None:
        source = random.Random(seed)
        found: collections.Counter[int] = collections.Counter()
        for _ in range(COUNT):
            request = mutated_inference(source)
            status = await status_of(path, request)
            found[status] += 1
            assert status < 500, (seed, request)
        # Answers may take longer than this waits for them.
        assert 400 in found, (seed, found)
        assert (await router.generate()).sequences

    play(
        scenario,
        called=[describe_function("double")],
        settings={"http_listen": f"unix:{path}"},
        patience=TIMEOUT + COUNT * PATIENCE,
    )

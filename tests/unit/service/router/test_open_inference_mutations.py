"""Mutated requests of Open Inference over HTTP: each is answered or refused."""

from __future__ import annotations

import collections
import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.fake_model import describe_function
from harness.http_mutation import PATIENCE, VALUES, mutated, status_of, with_other_values

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

COUNT = int(os.environ.get("FUZZ_REQUESTS", "300"))
X = {"name": "x", "shape": [2, 3], "datatype": "FP32"}
RAW = np.zeros([2, 3], np.float32).tobytes()
GENERATE = {"text_input": "a", "max_tokens": 2, "parameters": {"stop_words": ["x"]}}
# Paths, bodies, the binary data after them, and names of fields that they could have.
REQUESTS: list[tuple[str, dict[str, Any], bytes, list[str]]] = [
    ("double/infer", {"inputs": [X | {"data": [0.5] * 6}]}, b"", ["id", "outputs", "parameters"]),
    (
        "double/versions/1/infer",
        {
            "inputs": [X | {"parameters": {"binary_data_size": len(RAW)}}],
            "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
        },
        RAW,
        ["id", "parameters"],
    ),
    (
        "tiny/infer",
        {"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["a"]}]},
        b"",
        ["id", "outputs", "parameters"],
    ),
    ("tiny/generate", GENERATE, b"", ["id", "seed", "logit_bias", "sampling_parameters"]),
    ("tiny/generate_stream", GENERATE | {"stream": True}, b"", ["id", "temperature", "stop"]),
]


def any_request(source: random.Random) -> bytes:
    path, body, tail, names = source.choice(REQUESTS)
    body = with_other_values(source, body, names)
    if isinstance(body.get("inputs"), list) and source.random() < 0.5:
        fields = ["shape", "datatype", "data", "parameters", "name", "unheard"]
        body["inputs"] = [
            with_other_values(source, each, fields) if isinstance(each, dict) else each
            for each in body["inputs"]
        ]
    if source.random() < 0.1:
        body["parameters"] = {source.choice(["stream", "x", "seed"]): source.choice(VALUES)}
    length = len(json.dumps(body)) + source.choice([0] * 6 + [-1, 1, 10**6])
    headers = [b"inference-header-content-length: %d" % length] if tail else []
    return mutated(source, f"/v2/models/{path}", body, tail=tail, headers=headers)


def test_mutated_requests_find_no_defect(play: Play, sockets: Path) -> None:
    path = sockets / "http"
    seed = random.randrange(2**32)

    async def scenario(router: Router, worker: FakeWorker) -> None:
        source = random.Random(seed)
        found: collections.Counter[int] = collections.Counter()
        for _ in range(COUNT):
            request = any_request(source)
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
        patience=30 + COUNT * PATIENCE,
    )

"""Embeddings and ranks over HTTP, in front of scripted workers."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import numpy as np
import pytest

from harness.fake_model import describe_encoder, describe_function
from harness.waiting import TIMEOUT
from shaperouter.v1 import model_pb2
from shaperouter_service.edge import offloading
from shaperouter_service.edge.http.openai import encoders
from shaperouter_service.routing.deployments import Target
from shaperouter_service.serving.inference import preparation

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

EMBEDDINGS, RERANK = "/v1/embeddings", "/v1/rerank"
ASKED = {"model": "encoder", "input": ["TensorFlow is a library.", "Zoë"]}
RANKED = {"model": "ranker", "query": "what", "documents": ["a", "a b c", {"text": "a b"}]}


def describe_ranker() -> model_pb2.Model:
    """A text encoder that gives a pair of texts one score."""
    model = describe_encoder("ranker")
    (output,) = model.call.outputs
    output.name, output.shape[:] = "scores", [-1, 1]
    model.call.batch.outputs.clear()
    model.call.batch.outputs["scores"] = 0
    return model


@pytest.fixture
def http(play: Play, sockets: Path) -> Callable[..., None]:
    """Plays a scenario of an HTTP client and a worker with a text encoder."""
    path = sockets / "http"

    def run(scenario: Callable[..., Any], *, text: bool = True, **more: Any) -> None:
        async def with_client(router: Router, worker: FakeWorker) -> None:
            transport = httpx.AsyncHTTPTransport(uds=str(path))
            async with httpx.AsyncClient(
                transport=transport, base_url="http://router", timeout=TIMEOUT
            ) as client:
                await scenario(client, worker)

        settings = {"http_listen": f"unix:{path}"} | more
        called = [describe_encoder("encoder"), describe_ranker(), describe_function("double")]
        play(with_client, called=called, settings=settings, text=text)

    return run


def lengths(inputs: Any) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = inputs["attention_mask"].sum(axis=1, keepdims=True)
    return found.astype(np.float32)


def test_a_function_has_no_maximum_length(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, _: FakeWorker) -> None:
        listed = (await client.get("/v1/models")).json()["data"]
        lengths = {each["id"]: each.get("max_model_len") for each in listed}
        assert (lengths["double"], lengths["encoder"] > 0) == (None, True)
        assert "max_model_len" not in (await client.get("/v1/models/double")).json()

    http(scenario)


def test_each_text_has_an_embedding(http: Any, encode: Callable[[str], Sequence[int]]) -> None:
    async def scenario(client: httpx.AsyncClient, worker: FakeWorker) -> None:
        worker.answer = lambda inputs: {"embedding": np.repeat(lengths(inputs), 2, axis=1)}
        body = (await client.post(EMBEDDINGS, json=ASKED)).json()
        expected = [len(encode(text)) for text in ASKED["input"]]
        assert [each["embedding"] for each in body["data"]] == [[n, n] for n in expected]
        assert [each["index"] for each in body["data"]] == [0, 1]
        assert body["usage"] == {"prompt_tokens": sum(expected), "total_tokens": sum(expected)}
        asked = ASKED | {"encoding_format": "base64"}
        packed = (await client.post(EMBEDDINGS, json=asked)).json()["data"][0]["embedding"]
        assert np.frombuffer(base64.b64decode(packed), "<f4").tolist() == [expected[0]] * 2

    http(scenario)


def test_answers_have_the_name_that_the_request_gave(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, worker: FakeWorker) -> None:
        worker.answer = lambda inputs: {
            "embedding": np.repeat(lengths(inputs), 2, axis=1),
            "scores": lengths(inputs),
        }
        for path, asked in ((EMBEDDINGS, ASKED), (RERANK, RANKED)):
            asked = asked | {"model": f"my-{asked['model']}"}
            assert (await client.post(path, json=asked)).json()["model"] == asked["model"]

    names = ("encoder", "ranker")
    http(scenario, aliases={f"my-{name}": [Target(model=name, share=1.0)] for name in names})


def test_documents_are_ranked_by_their_scores(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, worker: FakeWorker) -> None:
        worker.answer = lambda inputs: {"scores": lengths(inputs)}
        body = (await client.post(RERANK, json=RANKED | {"top_n": 2})).json()
        assert [each["index"] for each in body["results"]] == [1, 2]
        assert body["results"][1]["document"] == {"text": "a b"}
        asked = RANKED | {"return_documents": False}
        bare = (await client.post(RERANK, json=asked)).json()["results"]
        assert [sorted(each) for each in bare] == [["index", "relevance_score"]] * 3
        worker.answer = lambda inputs: {"scores": np.repeat(lengths(inputs), 2, axis=1)}
        several = await client.post(RERANK, json=RANKED)
        assert several.status_code == 400
        assert "which has 2" in several.json()["error"]["message"]

    http(scenario)


@pytest.mark.parametrize(
    ("path", "changes", "param", "told"),
    [
        (EMBEDDINGS, {"input": None}, "input", "must be a text or a list of texts"),
        (EMBEDDINGS, {"input": []}, "input", "token ids are not supported, got []"),
        (EMBEDDINGS, {"input": [1, 2]}, "input", "got [1, 2]"),
        (EMBEDDINGS, {"input": "graphs " * 60}, "input", "must have at most"),
        (EMBEDDINGS, {"input": ["a", "graphs " * 60]}, "input[1]", "must have at most"),
        (EMBEDDINGS, {"model": "ranker"}, "model", "a text encoder that gives embeddings, got ran"),
        (RERANK, {"model": "encoder"}, "model", "a text encoder that gives scores, got encoder"),
        (RERANK, {"query": "graphs " * 60}, "documents[0]", "and its other text (max_length"),
        (RERANK, {"query": "x" * 10**5}, "query", "must have at most 8192 characters"),
        (RERANK, {"documents": ["a", "x" * 10**5]}, "documents[1]", "8192 characters"),
        (
            RERANK,
            {"documents": ["a"] * 8193},
            "documents",
            "at most 8192 texts, got 8193",
        ),
        (
            RERANK,
            {"query": "q" * 100_000, "documents": ["d"] * 1000},
            "query",
            "once for each document, got 100000000 for 1000 documents",
        ),
        (EMBEDDINGS, {"input": ["a"] * 2049}, "input", "must have at most 2048 texts, got 2049"),
        (EMBEDDINGS, {"encoding_format": "int8"}, "encoding_format", "'float' or 'base64'"),
        (EMBEDDINGS, {"dimensions": 3}, "dimensions", "is not supported, got 3"),
        (EMBEDDINGS, {"unheard": 3}, "unheard", "is unknown"),
        (EMBEDDINGS, {"model": None}, "model", "is required"),
        (RERANK, {"query": None}, "query", "is required"),
        (RERANK, {"documents": []}, "documents", "must be a list of texts, got []"),
        (RERANK, {"documents": [{"body": "x"}]}, "documents", "must be a list of texts"),
        (RERANK, {"top_n": 0}, "top_n", "must be at least 1, got 0"),
        (RERANK, {"model": "tiny"}, "model", "must be a model that is called with tensors"),
    ],
)
def test_fields_that_cannot_be_used_are_refused(
    http: Any, path: str, changes: dict[str, Any], param: str, told: str
) -> None:
    async def scenario(client: httpx.AsyncClient, worker: FakeWorker) -> None:
        body = (ASKED if path == EMBEDDINGS else RANKED) | changes
        response = await client.post(path, json=body)
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["param"] == param
        assert told in error["message"]
        assert not worker.calls

    http(scenario)


def test_a_model_without_a_tokenizer_is_told_without_fields_that_callers_lack(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, _: FakeWorker) -> None:
        for path, asked, param in ((EMBEDDINGS, ASKED, "input"), (RERANK, RANKED, "query")):
            error = (await client.post(path, json=asked)).json()["error"]
            assert error["param"] == param
            assert "has no tokenizer, so it takes token ids instead of texts" in error["message"]

    http(scenario, text=False)


@pytest.mark.parametrize(
    ("path", "body", "param"), [(EMBEDDINGS, ASKED, "input"), (RERANK, RANKED, "documents")]
)
def test_an_answer_that_would_be_too_large_is_refused_before_the_call(
    http: Any, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any], param: str
) -> None:
    monkeypatch.setattr(preparation, "MAX_ANSWER_BYTES", 7)

    async def scenario(client: httpx.AsyncClient, worker: FakeWorker) -> None:
        response = await client.post(path, json=body)
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["param"] == param
        assert "must have an answer of at most 7 bytes" in error["message"]
        assert not worker.calls

    http(scenario)


def test_a_query_takes_memory_for_each_document(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, worker: FakeWorker) -> None:
        asked = RANKED | {"query": "what " * 200, "documents": ["a"] * 20}
        response = await client.post(RERANK, json=asked)
        assert response.status_code == 400
        message = response.json()["error"]["message"]
        assert "half of this service's --max-tensor-memory, got 20" in message
        assert not worker.calls

    http(scenario, max_tensor_memory=2 * 19_000)


def test_a_long_answer_is_written_beside_other_calls(
    http: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offloading, "MAX_BYTES_AT_ONCE", 0)
    writers: list[str] = []
    written = encoders._embeddings

    def write(*arguments: Any) -> bytes:
        writers.append(threading.current_thread().name)
        return written(*arguments)

    monkeypatch.setattr(encoders, "_embeddings", write)

    async def scenario(client: httpx.AsyncClient, worker: FakeWorker) -> None:
        worker.answer = lambda inputs: {"embedding": np.repeat(lengths(inputs), 2, axis=1)}
        assert len((await client.post(EMBEDDINGS, json=ASKED)).json()["data"]) == 2
        assert writers != [threading.current_thread().name]

    http(scenario)

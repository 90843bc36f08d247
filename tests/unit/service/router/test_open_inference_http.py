"""Open Inference over HTTP: a router in this process, and fake workers."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import numpy as np
import pytest

from harness.fake_model import describe_encoder, describe_function
from harness.waiting import TIMEOUT
from shaperouter_service.auth import token_digest
from shaperouter_service.edge.http import server

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Router

Until = Callable[[Callable[[], bool]], Awaitable[None]]

MODEL = "/v2/models/tiny"
INFER, GENERATE = f"{MODEL}/infer", f"{MODEL}/generate"
DOUBLE = [describe_function("double")]
X = np.arange(6, dtype=np.float32).reshape(2, 3)
TENSOR = {"name": "x", "shape": [2, 3], "datatype": "FP32"}
CALL = {"id": "mine", "inputs": [TENSOR | {"data": X.ravel().tolist()}]}
TEXT = {"text_input": "A", "exclude_input_in_output": True}
LENGTH = "inference-header-content-length"


def text_request(text: str = "A", **parameters: Any) -> dict[str, Any]:
    tensor = {"name": "text_input", "shape": [1], "datatype": "BYTES", "data": [text]}
    return {"inputs": [tensor], "parameters": parameters}


def with_binary(tensor: dict[str, Any], content: bytes, **more: Any) -> dict[str, Any]:
    """The body and headers with which a client sends one tensor as binary data."""
    tensor = tensor | {"parameters": {"binary_data_size": len(content)}}
    head = json.dumps({"inputs": [tensor], **more}).encode()
    return {"content": head + content, "headers": {LENGTH: str(len(head))}}


def error_of(response: httpx.Response) -> str:
    body = response.json()
    assert body.keys() == {"error"}
    error: str = body["error"]
    return error


# Running models.


def test_a_call_in_json_is_answered_in_json(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        response = await client.post("/v2/models/double/versions/1/infer", json=CALL)
        assert response.headers["content-type"] == "application/json"
        assert response.json() == {
            "model_name": "double",
            "model_version": "1",
            "id": "mine",
            "outputs": [
                {"name": "y", "datatype": "FP32", "shape": [2, 3], "data": (2 * X).ravel().tolist()}
            ],
        }

    http(scenario, called=DOUBLE)


@pytest.mark.parametrize("rows", [2, 9000])
def test_a_call_in_bytes_is_answered_in_bytes_if_it_asks_for_them(http: Any, rows: int) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        array = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
        given = with_binary(
            TENSOR | {"shape": [rows, 3]},
            array.tobytes(),
            parameters={"binary_data_output": True},
        )
        response = await client.post("/v2/models/double/infer", **given)
        length = int(response.headers[LENGTH])
        (output,) = json.loads(response.content[:length])["outputs"]
        assert output["parameters"] == {"binary_data_size": array.nbytes}
        assert response.content[length:] == (2 * array).tobytes()

    http(scenario, called=DOUBLE)


def test_texts_are_embedded(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        worker.answer = lambda inputs: {"embedding": np.ones((len(inputs["input_ids"]), 2), "f4")}
        text = {"name": "text", "shape": [2], "datatype": "BYTES", "data": ["one", "two"]}
        asked = {"inputs": [text], "outputs": [{"name": "embedding"}]}
        response = await client.post("/v2/models/encoder/infer", json=asked)
        (output,) = response.json()["outputs"]
        assert (output["shape"], output["data"]) == ([2, 2], [1.0] * 4)

    http(scenario, called=[describe_encoder("encoder")])


def test_a_generation_is_answered_with_all_tensors(
    http: Any, encode: Callable[[str], list[int]]
) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        worker.script = [worker.tokens(*encode(" family")), worker.completion()]
        asked = text_request(exclude_input_in_output=True, max_tokens=7, stop_words=["x"])
        outputs = (await client.post(INFER, json=asked)).json()["outputs"]
        assert {each["name"]: each["data"] for each in outputs} == {
            "text_output": [" family"],
            "finish_reason": ["length"],
            "num_input_tokens": [len(encode("A"))],
            "num_output_tokens": [len(encode(" family"))],
        }
        assert worker.requests[0].options.max_new_tokens == 7

    http(scenario)


@pytest.mark.parametrize(
    ("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
)
def test_a_body_may_be_compressed(
    http: Any, encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        content = compress(json.dumps(CALL).encode())
        headers = {"content-encoding": encoding}
        url = "/v2/models/double/infer"
        response = await client.post(url, content=content, headers=headers)
        assert response.status_code == 200
        for wrong, status, told in (
            (content[:-9], 400, f"the body must be {encoding}: it is cut short"),
            (content + b"x", 400, f"the body must be {encoding}: it has 1 bytes after its end"),
            (b"x" + content, 400, f"the body must be {encoding}: Error"),
            (compress(b" " * 2**26), 413, "the body must have at most 33554432 bytes"),
        ):
            response = await client.post(url, content=wrong, headers=headers)
            assert (response.status_code, told in error_of(response)) == (status, True)
        headers = {"content-encoding": "br"}
        response = await client.post(url, content=content, headers=headers)
        assert response.status_code == 415
        assert "must be one of identity, gzip, deflate, got 'br'" in error_of(response)

    http(scenario, called=DOUBLE)


# Descriptions.


def test_health_follows_workers(http: Any, until: Until) -> None:
    async def scenario(client: httpx.AsyncClient, router: Router, worker: FakeWorker) -> None:
        ready = ("/v2/health/ready", f"{MODEL}/ready", f"{MODEL}/versions/1/ready")
        assert (await client.get("/v2/health/live")).status_code == 200
        for path in ready:
            assert (await client.get(path)).status_code == 400
        (model,) = (await client.post("/v2/repository/index")).json()
        assert (model["name"], model["state"]) == ("tiny", "LOADING")
        assert (await client.post("/v2/repository/index", json={"ready": True})).json() == []
        await worker.start()
        await until(lambda: router.free_slots > 0)
        for path in ready:
            assert (await client.get(path)).json()["ready"] is True

    http(scenario, started=False)


@pytest.mark.parametrize("path", ["/v2/models/gpt3/ready", f"{MODEL}/versions/2/ready"])
def test_an_unknown_model_or_version_is_not_ready(http: Any, path: str) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        response = await client.get(path)
        assert (response.status_code, response.json()["ready"]) == (400, False)

    http(scenario)


def test_a_router_that_stops_is_live_and_not_ready(http: Any, until: Until) -> None:
    async def scenario(client: httpx.AsyncClient, router: Router, worker: FakeWorker) -> None:
        worker.script.insert(0, worker.hold)
        call = asyncio.ensure_future(client.post(GENERATE, json=TEXT))
        await until(lambda: worker.running == 1)
        router.stop.set()
        refused = await client.post(GENERATE, json=TEXT)
        assert refused.status_code == 503
        assert "the service is being stopped" in error_of(refused)
        assert (await client.get("/v2/health/ready")).status_code == 400
        assert (await client.get("/v2/health/live")).status_code == 200
        worker.released.set()
        assert (await call).status_code == 200

    http(scenario, grace=TIMEOUT)


def test_models_are_described_as_over_grpc(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        server = (await client.get("/v2")).json()
        assert (server["name"], "binary_tensor_data" in server["extensions"]) == (
            "shaperouter",
            True,
        )
        assert (await client.get("/v2/models/double")).json() == {
            "name": "double",
            "versions": ["1"],
            "platform": "shaperouter",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, -1]}],
        }
        config = (await client.get("/v2/models/double/versions/1/config")).json()
        assert config["max_batch_size"] == 4
        assert config["dynamic_batching"]["preferred_batch_size"] == [1, 2, 4]
        assert config["model_transaction_policy"] == {"decoupled": False}
        (tensor,) = config["input"]
        assert (tensor["data_type"], tensor["dims"]) == ("TYPE_FP32", [-1])
        assert config["parameters"]["compiled"] == {"string_value": "true"}

    http(scenario, called=DOUBLE)


def test_statistics_count_requests(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        await client.post(GENERATE, json=TEXT)
        await client.post(GENERATE, json=TEXT | {"max_tokens": 1000})
        (one,) = (await client.get(f"{MODEL}/stats")).json()["model_stats"]
        assert one["inference_stats"]["success"]["count"] == 1
        assert one["inference_stats"]["fail"]["count"] == 1
        every = (await client.get("/v2/models/stats")).json()["model_stats"]
        assert one in every
        assert len(every) == 2

    http(scenario, called=DOUBLE)


# Errors.


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("/v2/models/gpt3/infer", CALL, 404, "no model 'gpt3'; this service has double, tiny"),
        ("/v2/models/gpt3/generate", TEXT, 404, "no model 'gpt3'"),
        (f"{MODEL}/versions/2/infer", CALL, 404, "tiny has only version 1, got '2'"),
        (f"{MODEL}/versions/2/generate", TEXT, 404, "tiny has only version 1, got '2'"),
        ("/v2/nothing", {}, 404, "there is nothing at /v2/nothing"),
        (MODEL, {}, 405, "Method Not Allowed: POST /v2/models/tiny"),
        (INFER, text_request(max_tokens=1000), 400, "max_tokens: must be at most 63"),
        (INFER, text_request(stream=True), 400, "stream: must be false where there is one answer"),
        (INFER, text_request(unheard=1), 400, "parameters.unheard: is unknown"),
        (GENERATE, TEXT | {"stream": True}, 400, "stream: must be false"),
        (GENERATE, {}, 400, "text_input: is required"),
        (GENERATE, {"text_input": 3}, 400, "text_input: must be a text, got 3"),
        (GENERATE, TEXT | {"unheard": 3}, 400, "unheard: is unknown"),
        (GENERATE, TEXT | {"top_k": "x"}, 400, "top_k: must be an integer, got 'x'"),
        (GENERATE, TEXT | {"top_k": 3, "parameters": {"top_k": 4}}, 400, "top_k: must equal"),
        (GENERATE, TEXT | {"text_input": "x" * 2**20}, 413, "at most 1048576 bytes"),
        ("/v2/models/double/generate", TEXT, 400, "must be a model that generates from text"),
        ("/v2/models/double/infer", {"inputs": []}, 400, "inputs.x: "),
        ("/v2/models/double/infer", CALL | {"parameters": {"priority": 1}}, 400, "'priority'"),
        (
            "/v2/models/double/infer",
            CALL | {"outputs": [{"name": "y", "parameters": {"classification": 3}}]},
            400,
            "outputs.y: must have no parameters, got 'classification'",
        ),
        ("/v2/repository/index", {"unready": True}, 400, "unready: is unknown"),
        ("/v2/repository/models/x/load", {}, 400, "models cannot be loaded or unloaded"),
        ("/v2/repository/models/tiny/unload", {}, 400, "set --model"),
        ("/v2/systemsharedmemory/region/a/register", {}, 501, "is not served"),
        ("/v2/logging", {}, 501, "/v2/logging is not served"),
    ],
)
def test_an_error_has_the_protocols_form_and_status(
    http: Any, path: str, body: dict[str, Any], status: int, told: str
) -> None:
    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        response = await client.post(path, json=body)
        assert response.status_code == status
        assert told in error_of(response)
        assert not worker.requests

    http(scenario, called=DOUBLE)


def test_values_of_any_depth_are_refused(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        for depth in (3, 100, 190, 210, 1_000):
            deep = "[" * depth + "]" * depth
            for name in ("text_input", "stop_words", "top_k", "logit_bias", "unheard"):
                content = f'{{"text_input": "A", "parameters": {{"{name}": {deep}}}}}'
                response = await client.post(GENERATE, content=content)
                assert response.status_code == 400

    http(scenario)


def test_pages_of_other_sites_need_a_type_that_browsers_do_not_send_unasked(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        content = json.dumps(TEXT).encode()
        for kind in ("text/plain", ""):
            headers = {"content-type": kind, "origin": "https://elsewhere.example"}
            response = await client.post(GENERATE, content=content, headers=headers)
            assert response.status_code == 415
        # As curl sends it.
        headers = {"content-type": "application/x-www-form-urlencoded"}
        assert (await client.post(GENERATE, content=content, headers=headers)).status_code == 200

    http(scenario)


# What every door has.


@pytest.mark.parametrize("streams", [False, True])
def test_a_caller_who_leaves_frees_the_slot(http: Any, until: Until, *, streams: bool) -> None:
    async def scenario(client: httpx.AsyncClient, router: Router, worker: FakeWorker) -> None:
        worker.script.insert(1 if streams else 0, worker.hold)
        path = f"{GENERATE}_stream" if streams else INFER
        if streams:
            asked = TEXT | {"stream": True}
            async with client.stream("POST", path, json=asked) as response:
                await anext(response.aiter_lines())
        else:
            call = asyncio.ensure_future(client.post(path, json=text_request()))
            await until(lambda: worker.running == 1)
            call.cancel()
        await until(lambda: worker.cancelled == 1)
        label = path.replace("tiny", "{model}")
        status = "200" if streams else "499"
        await until(
            lambda: (
                router.registry.get_sample_value(
                    "http_server_requests_total",
                    {"method": "POST", "path": label, "status": status},
                )
                == 1
            )
        )

    http(scenario)


def test_requests_need_a_token_and_probes_do_not(http: Any, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    digest = token_digest("secret")
    tokens.write_text(f'[clients.team]\nsha256 = ["{digest}"]\nmax_requests = 1')

    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        for probe in ("live", "ready"):
            response = await client.get(f"/v2/health/{probe}")
            assert response.status_code == 200
            assert response.headers["x-request-id"]
        for path in ("/v2", MODEL, f"{MODEL}/ready"):
            assert (await client.get(path)).status_code == 401
        refused = await client.post(GENERATE, json=TEXT)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert "the token is missing" in error_of(refused)
        given = {"authorization": "Bearer secret", "x-request-id": "my-id"}
        response = await client.post(GENERATE, json=TEXT, headers=given)
        assert (response.status_code, response.headers["x-request-id"]) == (200, "my-id")

    http(scenario, settings={"tokens": tokens})


def test_requests_count_against_the_limit_of_their_client(
    http: Any, until: Until, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens.toml"
    digest = token_digest("secret")
    tokens.write_text(f'[clients.team]\nsha256 = ["{digest}"]\nmax_requests = 1')

    async def scenario(client: httpx.AsyncClient, _: Router, worker: FakeWorker) -> None:
        worker.script.insert(0, worker.hold)
        given = {"authorization": "Bearer secret"}
        call = asyncio.ensure_future(client.post(GENERATE, json=TEXT, headers=given))
        await until(lambda: worker.running == 1)
        refused = await client.post(INFER, json=text_request(), headers=given)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert "client team is at its limit of 1 request" in error_of(refused)
        worker.released.set()
        assert (await call).status_code == 200

    http(scenario, settings={"tokens": tokens})


@pytest.mark.parametrize("path", [GENERATE, "/v1/completions"])
def test_what_outlasts_the_grace_of_a_stop_is_refused_with_a_time_to_try_again(
    http: Callable[..., None], until: Until, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(server, "_FLUSH", 0.1)
    body = TEXT if path == GENERATE else {"model": "tiny", "prompt": "A"}

    async def scenario(client: httpx.AsyncClient, router: Router, worker: FakeWorker) -> None:
        worker.script = [worker.hold]
        answer = asyncio.create_task(client.post(path, json=body))
        await until(lambda: worker.running == 1)
        router.stop.set()
        response = await answer
        assert response.status_code == 503
        assert response.headers["connection"] == "close"
        assert int(response.headers["retry-after-ms"]) > 0
        assert "the service is being stopped" in response.text

    http(scenario)

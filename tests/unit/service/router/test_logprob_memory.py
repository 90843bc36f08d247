"""The memory of log-probabilities that wait for the end of an answer is bounded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from google.rpc import error_details_pb2
from grpc import StatusCode, aio

from harness.router import wait_until
from shaperouter.v1 import generation_pb2
from shaperouter_service.serving.generation.kept_logprobs import LOGPROB_BYTES

if TYPE_CHECKING:
    import httpx2 as httpx

    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

LOGPROBS = generation_pb2.GenerationOptions(logprobs=2)
COMPLETIONS = "/v1/completions"
# Three tokens are generated for each prompt.
ONE = {"model": "tiny", "prompt": [5, 7, 3], "logprobs": 2}
ONE_BYTES = LOGPROB_BYTES * 3 * (1 + 2)
# One client may have half of the memory.
MEMORY = {"max_tensor_memory": 2 * ONE_BYTES}


@pytest.mark.parametrize(
    "more",
    [{"prompt": ["a", "b"]}, {"n": 2}, {"logprobs": 3}, {"echo": True}],
    ids=["prompts", "sequences", "likeliest", "prompt"],
)
def test_an_answer_with_too_many_log_probabilities_is_refused(
    http: Any, more: dict[str, Any]
) -> None:
    async def scenario(client: httpx.AsyncClient, router: Router, worker: FakeWorker) -> None:
        worker.script.insert(0, worker.scores(7, 3))
        response = await client.post(COMPLETIONS, json=ONE)
        assert response.status_code == 200, response.text
        response = await client.post(COMPLETIONS, json=ONE | more)
        assert response.status_code == 400
        assert router.metric("requests_total", code="INVALID_ARGUMENT")
        error = response.json()["error"]
        assert f"logprobs: must need at most {ONE_BYTES} bytes" in error["message"]
        assert "--max-tensor-memory" in error["message"]

    http(scenario, settings=MEMORY)


def test_log_probabilities_of_a_stream_are_not_kept(http: Any) -> None:
    async def scenario(client: httpx.AsyncClient, *_: Any) -> None:
        asked = ONE | {"prompt": ["a", "b"], "stream": True}
        response = await client.post(COMPLETIONS, json=asked)
        assert response.text.endswith("data: [DONE]\n\n")
        assert "error" not in response.text

    http(scenario, settings=MEMORY)


def test_a_client_whose_log_probabilities_take_its_share_is_told_to_wait(
    play: Play, detail: Any
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script.insert(-1, worker.hold)
        two = [asyncio.ensure_future(router.generate(options=LOGPROBS)) for _ in "ab"]
        (refused,), (held,) = await asyncio.wait(two, return_when=asyncio.FIRST_COMPLETED)
        error = await router.error(refused)
        assert error.code() is StatusCode.RESOURCE_EXHAUSTED
        assert detail(error, error_details_pb2.ErrorInfo).reason == "LOGPROB_MEMORY_FULL"
        assert router.metric("requests_total", code="RESOURCE_EXHAUSTED") == 1
        worker.released.set()
        await held
        # What was kept is free again.
        await router.generate(options=LOGPROBS)

    play(scenario, settings=MEMORY)


def test_growing_log_probabilities_leave_room_for_another_client(play: Play) -> None:
    def called_by(router: Router, name: str) -> Any:
        request = generation_pb2.GenerateRequest(
            token_ids=generation_pb2.TokenIds(ids=[1]), options=LOGPROBS
        )
        return router.generation.Generate(request, metadata=(("x-client-id", name),))

    async def scenario(router: Router, worker: FakeWorker) -> None:
        # One log-probability each, and the others once the test says so.
        worker.script.insert(1, worker.hold)
        calls = [asyncio.ensure_future(called_by(router, name)) for name in "abcd"]
        await wait_until(lambda: worker.running == 4)
        worker.released.set()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        refused = [each for each in ended if isinstance(each, aio.AioRpcError)]
        # Four clients have a fifth each, which is less than any of them needs.
        assert 0 < len(refused) < len(ended)
        for error in refused:
            assert error.code() is StatusCode.RESOURCE_EXHAUSTED
            assert "of one client" in (error.details() or "")

    play(scenario, settings={"max_tensor_memory": 3 * ONE_BYTES})

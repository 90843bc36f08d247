"""Generations over Open Inference: a router in this process, and fake workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from grpc import StatusCode, aio

from harness.fake_model import describe_encoder_decoder
from harness.loads import make_repository
from harness.open_inference import infer_request, tensors_of
from harness.waiting import TIMEOUT
from shaperouter_service.auth.clients import token_digest
from shaperouter_service.edge.inference.grpc import servicer
from shaperouter_service.edge.inference.grpc.servicer import InferenceServicer
from shaperouter_service.edge.inference.stubs import grpc_service_pb2 as pb
from shaperouter_service.edge.inference.stubs.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from shaperouter_service.routing.deployments import Target
from shaperouter_service.routing.on_demand import OnDemandLimits

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Until = Callable[[Callable[[], bool]], Awaitable[None]]


def stub_of(router: Router) -> Any:
    return GRPCInferenceServiceStub(router.channel)


async def infer(router: Router, request: pb.ModelInferRequest) -> pb.ModelInferResponse:
    return await stub_of(router).ModelInfer(request, timeout=TIMEOUT)


async def streamed(
    router: Router, *requests: pb.ModelInferRequest
) -> list[pb.ModelStreamInferResponse]:
    call = stub_of(router).ModelStreamInfer(iter(requests), timeout=TIMEOUT)
    return [response async for response in call]


# One answer.


def test_a_generation_is_answered_with_all_tensors(
    play: Play, encode: Callable[[str], list[int]]
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        ids = encode(" family")
        worker.script = [worker.tokens(*ids), worker.completion()]
        request = infer_request(text_input="A", exclude_input_in_output=True, max_tokens=7)
        request.id = "mine"
        response = await infer(router, request)
        assert (response.model_name, response.model_version, response.id) == ("tiny", "1", "mine")
        assert tensors_of(response) == {
            "text_output": [" family"],
            "finish_reason": ["length"],
            "num_input_tokens": [len(encode("A"))],
            "num_output_tokens": [len(ids)],
        }
        (run,) = worker.requests
        assert run.options.max_new_tokens == 7

    play(scenario)


def test_the_prompt_comes_first_unless_it_is_excluded(
    play: Play, encode: Callable[[str], list[int]]
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [worker.tokens(*encode(" family")), worker.completion()]
        response = await infer(router, infer_request(text_input="A", outputs=("text_output",)))
        assert tensors_of(response) == {"text_output": ["A family"]}

    play(scenario)


@pytest.mark.parametrize("name", ["tiny", "chat"])
@pytest.mark.parametrize("given", [{}, {"exclude_input_in_output": False}], ids=str)
def test_a_source_is_no_part_of_the_answer(
    play: Play, encode: Callable[[str], list[int]], name: str, given: dict[str, Any]
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.models = [describe_encoder_decoder("tiny")]
        worker.script = [worker.tokens(*encode(" family")), worker.completion()]
        await worker.start()
        request = infer_request(text_input="A", outputs=("text_output",), **given)
        request.model_name = name
        assert tensors_of(await infer(router, request)) == {"text_output": [" family"]}

    aliases = {"chat": [Target(model="tiny", share=1.0)]}
    play(scenario, started=False, settings={"aliases": aliases})


def test_a_source_of_a_model_that_is_loaded_on_demand_is_no_part_of_the_answer(
    play: Play, checkpoint: Path, tmp_path: Path, encode: Callable[[str], list[int]]
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.describe = describe_encoder_decoder
        worker.script = [worker.tokens(*encode(" family")), worker.completion()]
        request = infer_request(text_input="A", outputs=("text_output",))
        request.model_name = "tiny-2"
        assert tensors_of(await infer(router, request)) == {"text_output": [" family"]}

    repository, on_demand = make_repository(tmp_path, checkpoint), OnDemandLimits(max_bytes=10**7)
    play(scenario, settings={"repository": repository, "on_demand": on_demand})


def test_the_log_probability_is_returned_if_its_output_is_requested(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [worker.tokens(4, 8), worker.completion()]
        request = infer_request(text_input="A", outputs=("cumulative_logprob",))
        assert tensors_of(await infer(router, request)) == {"cumulative_logprob": [-3.0]}

    play(scenario)


def test_the_prompt_is_scored_if_its_log_probabilities_are_requested(
    play: Play, encode: Callable[[str], list[int]]
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        prompt = encode("A family of")
        worker.script = [worker.scores(*prompt[1:]), worker.completion()]
        request = infer_request(
            text_input="A family of",
            max_tokens=0,
            outputs=("prompt_logprobs", "num_output_tokens"),
        )
        assert tensors_of(await infer(router, request)) == {
            "prompt_logprobs": [-token / 4 for token in prompt[1:]],
            "num_output_tokens": [0],
        }

    play(scenario)


def test_beam_search_answers_with_several_texts(
    play: Play, encode: Callable[[str], list[int]]
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.hypotheses = [
            worker.hypothesis(-0.5, *encode(" family")),
            worker.hypothesis(-1.0, *encode(" of")),
        ]
        request = infer_request(text_input="A", exclude_input_in_output=True, beam_width=2, n=2)
        tensors = tensors_of(await infer(router, request))
        assert tensors["text_output"] == [" family", " of"]
        assert tensors["num_output_tokens"] == [len(encode(" family")), len(encode(" of"))]

    play(scenario)


def test_an_error_of_an_option_has_the_callers_name(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        call = infer(router, infer_request(text_input="A", max_tokens=1000))
        error = await router.error(call)
        assert error.code() is StatusCode.INVALID_ARGUMENT
        assert str(error.details()).startswith("max_tokens: must be at most 63 after a prompt of 1")

    play(scenario)


def test_a_stream_is_refused_where_there_is_one_answer(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        error = await router.error(infer(router, infer_request(text_input="A", stream=True)))
        assert error.code() is StatusCode.INVALID_ARGUMENT
        assert "stream: must be false" in str(error.details())

    play(scenario)


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"model_name": "gpt3"}, StatusCode.NOT_FOUND, "no model 'gpt3'; this service has tiny"),
        ({"model_version": "2"}, StatusCode.NOT_FOUND, "tiny has only version 1, got '2'"),
    ],
)
def test_an_unknown_model_or_version_is_not_found(
    play: Play, change: dict[str, str], code: StatusCode, message: str
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        request = infer_request(text_input="A")
        request.MergeFrom(pb.ModelInferRequest(**change))
        error = await router.error(infer(router, request))
        assert error.code() is code
        assert message in str(error.details())

    play(scenario)


def test_a_request_of_any_door_is_counted_and_its_slot_freed(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [worker.tokens(5), worker.hold]
        call = asyncio.ensure_future(infer(router, infer_request(text_input="A")))
        await until(lambda: worker.running == 1)
        call.cancel()
        await until(lambda: worker.cancelled == 1)
        await until(lambda: router.metric("requests_total", model="tiny", code="CANCELLED") == 1)

    play(scenario)


# Streams.


def test_text_streams_as_it_comes(play: Play, encode: Callable[[str], list[int]]) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [
            worker.tokens(*encode(" family")),
            worker.tokens(*encode(" of")),
            worker.completion(),
        ]
        request = infer_request(text_input="A", stream=True)
        request.id = "7"
        responses = await streamed(router, request)
        assert not any(response.error_message for response in responses)
        answers = [response.infer_response for response in responses]
        assert {answer.id for answer in answers} == {"7"}
        assert [answer.parameters["triton_final_response"].bool_param for answer in answers] == [
            *[False] * (len(answers) - 1),
            True,
        ]
        texts = [tensors_of(answer)["text_output"] for answer in answers]
        assert "".join(text for (text,) in texts) == " family of"
        assert len(texts) > 2
        assert tensors_of(answers[0]).keys() == {"text_output"}
        assert tensors_of(answers[-1])["num_output_tokens"] == [len(encode(" family of"))]

    play(scenario)


def test_a_request_that_does_not_stream_has_one_response_in_a_stream(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        (response,) = await streamed(router, infer_request(text_input="A"))
        assert response.infer_response.parameters["triton_final_response"].bool_param
        assert "text_output" in tensors_of(response.infer_response)

    play(scenario)


def test_requests_of_a_stream_run_side_by_side(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [worker.tokens(5), worker.hold, worker.completion()]
        requests = [infer_request(text_input="A") for _ in range(3)]
        for index, request in enumerate(requests):
            request.id = str(index)
        call = asyncio.ensure_future(streamed(router, *requests))
        await until(lambda: worker.running == 3)
        worker.released.set()
        assert {response.infer_response.id for response in await call} == {"0", "1", "2"}

    play(scenario)


def test_an_error_is_a_response_and_the_stream_goes_on(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        wrong = infer_request(text_input="A", temperature="hot")
        wrong.id = "wrong"
        responses = await streamed(router, wrong, infer_request(text_input="A"))
        errors = {r.infer_response.id: r.error_message for r in responses}
        assert errors["wrong"].startswith("inputs.temperature: must be FP32")
        assert errors["wrong"].endswith("got BYTES")
        assert errors[""] == ""

    play(scenario)


@pytest.mark.parametrize(
    ("defect", "told"),
    [
        (RuntimeError("can't start new thread"), "the service has no memory left"),
        (ValueError("a defect"), "internal error"),
    ],
)
def test_an_unexpected_error_is_a_response_and_the_stream_goes_on(
    play: Play, monkeypatch: pytest.MonkeyPatch, defect: Exception, told: str
) -> None:
    responses = InferenceServicer._responses

    def fail(of: InferenceServicer, request: Any, **options: Any) -> Any:
        if request.id == "wrong":
            raise defect
        return responses(of, request, **options)

    monkeypatch.setattr(InferenceServicer, "_responses", fail)

    async def scenario(router: Router, worker: FakeWorker) -> None:
        wrong = infer_request(text_input="A")
        wrong.id = "wrong"
        errors = {
            response.infer_response.id: response.error_message
            for response in await streamed(router, wrong, infer_request(text_input="A"))
        }
        assert errors["wrong"].startswith(told)
        assert errors[""] == ""

    play(scenario)


def test_cancelling_a_stream_frees_all_slots(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [worker.tokens(5), worker.hold]
        call = stub_of(router).ModelStreamInfer(
            iter([infer_request(text_input="A", stream=True) for _ in range(2)])
        )
        await until(lambda: worker.running == 2)
        call.cancel()
        await until(lambda: worker.cancelled == 2)

    play(scenario)


def test_each_request_of_a_stream_counts_against_the_limit_of_calls(
    play: Play, until: Until
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [worker.tokens(5), worker.hold, worker.completion()]
        call = stub_of(router).ModelStreamInfer(
            iter([infer_request(text_input="A") for _ in range(3)]), timeout=TIMEOUT
        )
        responses = aiter(call)
        error = (await anext(responses)).error_message
        assert "too many calls at once: limit 2 calls of one client" in error
        worker.released.set()
        assert [each.error_message async for each in responses] == ["", ""]

    play(scenario, settings={"max_calls": 4})


def test_a_client_may_have_half_of_all_idle_streams(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servicer, "MAX_STREAMS", 2)

    async def scenario(router: Router, _: FakeWorker) -> None:
        idle = stub_of(router).ModelStreamInfer(timeout=TIMEOUT)
        await idle.write(infer_request(text_input="A"))
        await idle.read()
        # It sends no request: if sending fails, gRPC's client replaces the status that it has got.
        refused = stub_of(router).ModelStreamInfer(timeout=TIMEOUT)
        assert await refused.code() is StatusCode.RESOURCE_EXHAUSTED
        assert "limit 1 calls of one client" in str(await refused.details())
        await idle.done_writing()
        while await idle.read() is not aio.EOF:
            pass
        assert await streamed(router, infer_request(text_input="A"))

    play(scenario)


def test_a_stopping_router_waits_for_requests_and_not_for_an_idle_stream(
    play: Play, until: Until
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [worker.tokens(5), worker.hold, worker.completion()]
        call = stub_of(router).ModelStreamInfer(timeout=TIMEOUT)
        await call.write(infer_request(text_input="A"))
        await until(lambda: worker.running == 1)
        router.stop.set()
        await call.write(infer_request(text_input="A"))
        refused = await call.read()
        assert "the service is being stopped" in refused.error_message
        worker.released.set()
        answered = await call.read()
        assert answered.error_message == ""
        with pytest.raises(aio.AioRpcError):
            await call.read()

    play(scenario, grace=TIMEOUT)


# Tokens.


def with_clients(directory: Path, **limits: int) -> dict[str, Any]:
    """Settings with one client, whose token is `secret`."""
    path = directory / "tokens.toml"
    lines = [f'sha256 = ["{token_digest("secret")}"]', *(f"{k} = {v}" for k, v in limits.items())]
    path.write_text("\n".join(["[clients.team]", *lines]))
    return {"tokens": path}


TOKEN = (("authorization", "Bearer secret"),)


def test_requests_and_streams_need_a_token_and_probes_do_not(play: Play, tmp_path: Path) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        stub = stub_of(router)
        error = await router.error(infer(router, infer_request(text_input="A")))
        assert error.code() is StatusCode.UNAUTHENTICATED
        # It sends no request: if sending fails, gRPC's client replaces the status that it has got.
        assert await stub.ModelStreamInfer(timeout=TIMEOUT).code() is StatusCode.UNAUTHENTICATED
        for probe in (
            stub.ServerLive(pb.ServerLiveRequest()),
            stub.ServerReady(pb.ServerReadyRequest()),
        ):
            await probe
        await stub.ModelInfer(infer_request(text_input="A"), metadata=TOKEN, timeout=TIMEOUT)

    play(scenario, settings=with_clients(tmp_path))


def test_each_request_of_a_stream_counts_against_the_limit_of_its_client(
    play: Play, until: Until, tmp_path: Path
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script = [worker.tokens(5), worker.hold, worker.completion()]
        call = stub_of(router).ModelStreamInfer(
            iter([infer_request(text_input="A") for _ in range(2)]),
            metadata=TOKEN,
            timeout=TIMEOUT,
        )
        responses = aiter(call)
        error = (await anext(responses)).error_message
        assert "client team is at its limit of 1 request" in error
        worker.released.set()
        assert [each.error_message async for each in responses] == [""]

    play(scenario, settings=with_clients(tmp_path, max_requests=1))

"""Calls of models that answer once: what workers get, what callers get, and losses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc import StatusCode, aio

from harness.fake_model import describe_function
from shaperouter.v1 import graph_pb2, inference_pb2, model_pb2, signature_pb2
from shaperouter_service.errors import QueueFullError, StoppingError
from shaperouter_service.wire.tensors import tensor_to_message, tensors_from_messages

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

Detail = Callable[[aio.AioRpcError, type[Message]], Any]
Until = Callable[[Callable[[], bool]], Awaitable[None]]

DOUBLE = [describe_function("double")]
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def outputs(response: inference_pb2.InferResponse) -> dict[str, Any]:
    return tensors_from_messages(response.outputs, field="outputs")


async def refused(router: Router, detail: Detail, **fields: Any) -> dict[str, str]:
    """The violations of a call that is refused."""
    error = await router.error(router.infer(**fields))
    assert error.code() is StatusCode.INVALID_ARGUMENT, error
    found = detail(error, error_details_pb2.BadRequest).field_violations
    return {violation.field: violation.description for violation in found}


# Answers.


def test_the_answer_is_the_workers_with_how_it_was_served(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        response = await router.infer(model="double", inputs={"x": X})
        np.testing.assert_array_equal(outputs(response)["y"], 2 * X)
        metadata = response.metadata
        assert (metadata.model, metadata.worker, metadata.rows) == ("double", "worker-0", 2)
        assert (metadata.queue_seconds, metadata.stall_seconds) == (0.125, 2.5)
        assert metadata.device_seconds == 0.25
        (use,) = metadata.graphs
        assert (use.served.rows, use.served.length) == (2, 16)
        assert metadata.total_seconds > metadata.route_seconds > 0

    play(scenario, called=DOUBLE)


def test_without_a_name_the_only_model_that_can_be_called_answers(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        assert (await router.infer(inputs={"x": X})).metadata.model == "double"

    play(scenario, called=DOUBLE)


def test_a_batch_above_the_last_rung_is_sent_whole(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        response = await router.infer(model="double", inputs={"x": np.zeros((9, 3), np.float32)})
        assert response.metadata.rows == 9
        assert len(worker.calls) == 1

    play(scenario, called=DOUBLE)


def test_routes_are_explained_on_request(play: Play) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        response = await router.infer(model="double", inputs={"x": X}, explain=True)
        (route,) = response.metadata.routes
        assert {option.worker for option in route.options} == {"worker-0", "worker-1"}
        assert route.options[0].worker == response.metadata.worker
        assert route.options[0].call.kind == signature_pb2.GRAPH_KIND_CALL
        assert not route.options[0].HasField("decode")

    play(scenario, workers=2, called=DOUBLE)


def test_an_answer_names_the_revision_of_its_worker(play: Play, until: Until) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        for worker in workers:
            worker.models = [describe_function("double")]
            worker.models[0].revision = worker.name
            await worker.start()
            await worker.make_first_graphs()
        await until(lambda: router.metric("model_workers", model="double") == len(workers))
        answers = await asyncio.gather(
            *(router.infer(model="double", inputs={"x": X}) for _ in range(8))
        )
        served = [answer.metadata for answer in answers]
        assert {each.worker for each in served} == {worker.name for worker in workers}
        assert all(each.revision == each.worker for each in served)

    play(scenario, workers=2, started=False, called=DOUBLE)


def test_calls_are_counted_like_requests(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await router.infer(model="double", inputs={"x": X})
        assert router.metric("requests_total", model="double", code="OK") == 1
        assert router.metric("cover_served_total", model="double", kind="call", fit="tight") == 1
        assert router.metric("num_requests_waiting", model="double") == 0

    play(scenario, called=DOUBLE)


# Bad input.


def test_wrong_tensors_are_refused_by_name(play: Play, detail: Detail) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        for inputs, field, fault in (
            ({}, "inputs.x", "is required"),
            ({"x": X, "z": X}, "inputs", "the model has no input 'z'; it takes x"),
            ({"x": X.astype(np.int32)}, "inputs.x", "must be FP32, got INT32"),
            ({"x": X[0]}, "inputs.x", "must have 2 dimensions, got 1"),
            ({"x": X[:0]}, "inputs.x", "axis batch must have at least 1, got 0"),
            (
                {"x": np.zeros((1, 65), np.float32)},
                "inputs.x",
                "axis length (dimension 1) must be at most 64, got 65",
            ),
        ):
            found = await refused(router, detail, model="double", inputs=inputs)
            assert found == {field: fault}
        assert not worker.calls

    play(scenario, called=DOUBLE)


def test_unknown_and_repeated_outputs_are_refused(play: Play, detail: Detail) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        found = await refused(router, detail, inputs={"x": X}, outputs=["y", "z", "y"])
        assert found == {
            "outputs[1]": "the model has no output 'z'; it gives y",
            "outputs[2]": "must name each output only once, got 'y' again",
        }

    play(scenario, called=DOUBLE)


def test_a_shape_that_its_content_lacks_is_refused(play: Play, detail: Detail) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        tensor = tensor_to_message("x", X)
        tensor.shape[:] = [2**20, 2**20]
        request = inference_pb2.InferRequest(model="double", inputs=[tensor])
        error = await router.error(router.inference.Infer(request))
        (violation,) = detail(error, error_details_pb2.BadRequest).field_violations
        assert violation.field == "inputs[0]"
        assert "content must have 4398046511104 bytes" in violation.description

    play(scenario, called=DOUBLE)


def test_models_of_other_kinds_say_what_they_do(play: Play, detail: Detail) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        found = await refused(router, detail, model="tiny", inputs={"x": X})
        assert "tiny, which generates from text" in found["model"]
        error = await router.error(router.generate(model="double"))
        assert "double, which is called with tensors" in str(error.details())

    play(scenario, called=DOUBLE)


# Losses.


def test_a_call_whose_worker_dies_is_answered_by_another(play: Play, until: Until) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        for worker in workers:
            worker.call_script = [worker.hold]
        call = asyncio.create_task(router.infer(model="double", inputs={"x": X}))
        await until(lambda: any(worker.calls for worker in workers))
        (first,) = (worker for worker in workers if worker.calls)
        (other,) = (worker for worker in workers if worker is not first)
        other.call_script = []
        await first.kill()
        response = await call
        assert response.metadata.worker == other.name
        assert not other.calls[0].suspect
        assert router.metric("runs_resumed_total", model="double", reason="lost") == 1

    play(scenario, workers=2, called=DOUBLE)


def test_a_call_returned_by_a_draining_worker_is_answered_by_another(play: Play) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        returned = []

        async def return_first() -> None:
            if not returned:
                returned.append(True)
                raise StoppingError

        for worker in workers:
            worker.call_script = [return_first]
        await router.infer(model="double", inputs={"x": X})
        assert [len(worker.calls) for worker in workers] == [1, 1]
        assert router.metric("runs_resumed_total", model="double", reason="draining") == 1

    play(scenario, workers=2, called=DOUBLE)


def test_a_call_that_kills_workers_is_computed_alone_and_then_refused(
    play: Play, until: Until
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        async def die() -> None:
            tasks.append(asyncio.create_task(revive()))
            await worker.released.wait()

        async def revive() -> None:
            await worker.kill()
            await worker.start()

        tasks: list[asyncio.Task[None]] = []
        worker.call_script = [die]
        error = await router.error(router.infer(model="double", inputs={"x": X}))
        assert error.code() is StatusCode.INTERNAL
        assert "4 workers died or hung" in str(error.details())
        assert [call.suspect for call in worker.calls] == [False, False, True, True]
        await asyncio.gather(*tasks)

    play(scenario, called=DOUBLE)


def test_a_cancelled_call_is_cancelled_on_its_worker(play: Play, until: Until) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.call_script = [worker.hold]
        call = asyncio.create_task(router.infer(model="double", inputs={"x": X}))
        await until(lambda: worker.running == 1)
        call.cancel()
        await until(lambda: worker.cancelled == 1)
        assert worker.running == 0

    play(scenario, called=DOUBLE)


@pytest.mark.usefixtures("wide_margins")
def test_a_deadline_ends_a_call_with_what_it_waited_for(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.call_script = [worker.hold]
        error = await router.error(router.infer(model="double", inputs={"x": X}, timeout=5.0))
        assert error.code() is StatusCode.DEADLINE_EXCEEDED
        assert "the request waited for worker-0" in str(error.details())

    play(scenario, called=DOUBLE)


def test_a_full_queue_is_offered_to_the_other_worker_and_then_refused(play: Play) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        for worker in workers:
            worker.call_script = [QueueFullError("double", 8)]
        error = await router.error(router.infer(model="double", inputs={"x": X}))
        assert error.code() is StatusCode.RESOURCE_EXHAUSTED
        assert [len(worker.calls) for worker in workers] == [1, 1]

    play(scenario, workers=2, called=DOUBLE)


# Models and graphs.


def test_a_model_and_its_graphs_are_described(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        response = await router.models.GetModel(model_pb2.GetModelRequest(name="double"))
        assert response.model.call == worker.models[1].call
        assert not response.model.HasField("ladders")
        request = graph_pb2.ListGraphsRequest(model="double", include_cold=True)
        graphs = (await router.graphs.ListGraphs(request)).graphs
        shapes = {(graph.signature.rows, graph.signature.length) for graph in graphs}
        assert shapes == {(rows, length) for rows in (1, 2, 4) for length in (16, 64)}

    play(scenario, called=DOUBLE)

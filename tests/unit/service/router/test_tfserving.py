"""Calls over TensorFlow Serving's protocol: a router in this process, and fake workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from grpc import StatusCode

from harness.fake_model import describe_encoder, describe_function
from harness.loads import make_repository
from harness.waiting import TIMEOUT
from shaperouter.v1 import model_pb2
from shaperouter_service.edge.tfserving.stubs.tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)
from shaperouter_service.edge.tfserving.tensors import tensor_to_message, tensors_from_messages
from shaperouter_service.routing.deployments import Target
from shaperouter_service.routing.on_demand import OnDemandLimits

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

DOUBLE = [describe_function("double")]
X = np.arange(6, dtype=np.float32).reshape(2, 3)
Status = get_model_status_pb2.ModelVersionStatus


def describe_examples(outputs: dict[str, Any]) -> list[model_pb2.Model]:
    """A model of serialized examples."""
    tensors = [
        model_pb2.TensorSpec(name=name, dtype=f"DATA_TYPE_{dtype}", shape=shape)
        for name, (dtype, shape) in ({"examples": ("BYTES", [-1])} | outputs).items()
    ]
    batch = model_pb2.Axis(
        name="batch", inputs={"examples": 0}, outputs=dict.fromkeys(outputs, 0), ladder=[1, 2, 4]
    )
    call = model_pb2.CallSpec(inputs=tensors[:1], outputs=tensors[1:], batch=batch)
    return [model_pb2.Model(name="rated", kind=model_pb2.MODEL_KIND_FUNCTION, call=call)]


CLASSIFIER = describe_examples({"classes": ("BYTES", [-1, 2]), "scores": ("FP32", [-1, 2])})
REGRESSOR = describe_examples({"outputs": ("FP32", [-1, 1])})


def predictions(router: Router) -> Any:
    return prediction_service_pb2_grpc.PredictionServiceStub(router.channel)


async def predict(router: Router, **fields: Any) -> predict_pb2.PredictResponse:
    spec = {"name": "double"} | fields.pop("spec", {})
    inputs = {name: tensor_to_message(array) for name, array in fields.pop("inputs").items()}
    request = predict_pb2.PredictRequest(model_spec=spec, inputs=inputs, **fields)
    return await predictions(router).Predict(request, timeout=TIMEOUT)


def test_predict_runs_the_model(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        response = await predict(
            router,
            inputs={"x": X},
            spec={"signature_name": "serving_default", "version": {"value": 1}},
            output_filter=["y"],
        )
        (name, found) = next(iter(tensors_from_messages(response.outputs).items()))
        assert name == "y"
        np.testing.assert_array_equal(found, 2 * X)
        assert response.model_spec.name == "double"
        assert response.model_spec.version.value == 1
        assert response.model_spec.signature_name == "serving_default"
        assert router.metric("requests_total", model="double", code="OK") == 1

    play(scenario, called=DOUBLE)


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"spec": {"name": "other"}}, StatusCode.NOT_FOUND, "no model 'other'"),
        ({"spec": {"version": {"value": 3}}}, StatusCode.NOT_FOUND, "only version 1, got '3'"),
        ({"spec": {"signature_name": "f"}}, StatusCode.INVALID_ARGUMENT, "serving_default or em"),
        ({"inputs": {}}, StatusCode.INVALID_ARGUMENT, "inputs.x: is required"),
        ({"inputs": {"x": X.astype("f8")}}, StatusCode.INVALID_ARGUMENT, "must be FP32, got FP64"),
        ({"output_filter": ["z"]}, StatusCode.INVALID_ARGUMENT, "no output 'z'; it gives y"),
        ({"spec": {"name": "tiny"}}, StatusCode.INVALID_ARGUMENT, "got tiny, which generates"),
    ],
    ids=str,
)
def test_errors_have_a_status_with_name_and_value(
    play: Play, fields: dict[str, Any], code: StatusCode, message: str
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        error = await router.error(predict(router, **({"inputs": {"x": X}} | fields)))
        assert error.code() is code
        assert message in str(error.details())

    play(scenario, called=DOUBLE)


def test_a_tensor_of_a_terabyte_in_a_small_message_is_refused(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        request = predict_pb2.PredictRequest(model_spec={"name": "double"})
        request.inputs["x"].dtype = 1
        request.inputs["x"].tensor_shape.dim.add(size=2**40)
        request.inputs["x"].float_val.append(1)
        error = await router.error(predictions(router).Predict(request, timeout=TIMEOUT))
        assert error.code() is StatusCode.INVALID_ARGUMENT
        assert f"33554432 bytes, got {2**42}" in str(error.details())

    play(scenario, called=DOUBLE)


def examples(**fields: Any) -> dict[str, Any]:
    return {
        "model_spec": {"name": "rated"},
        "input": {"example_list": {"examples": [{}, {}]}},
    } | fields


def test_classify_answers_with_classes(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.answer = cats_and_dogs
        request = classification_pb2.ClassificationRequest(**examples())
        response = await predictions(router).Classify(request, timeout=TIMEOUT)
        first, second = response.result.classifications
        assert [(each.label, each.score) for each in first.classes] == [
            ("cat", 0.25),
            ("dog", 0.75),
        ]
        assert first == second

    play(scenario, called=CLASSIFIER)


def test_regress_answers_with_values(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.answer = lambda inputs: {"outputs": np.float32([[0.5], [1.5]])}
        request = regression_pb2.RegressionRequest(**examples())
        response = await predictions(router).Regress(request, timeout=TIMEOUT)
        assert [each.value for each in response.result.regressions] == [0.5, 1.5]

    play(scenario, called=REGRESSOR)


def test_regress_refuses_several_values_of_an_example(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.answer = lambda inputs: {"outputs": np.float32([[0.5, 1.5], [2.5, 3.5]])}
        request = regression_pb2.RegressionRequest(**examples())
        error = await router.error(predictions(router).Regress(request, timeout=TIMEOUT))
        assert error.code() is StatusCode.INVALID_ARGUMENT
        assert "got outputs of shape [2, 2]; call Predict" in str(error.details())

    play(scenario, called=describe_examples({"outputs": ("FP32", [-1, -1])}))


async def classify(router: Router, model: str) -> list[list[str]]:
    """The labels of two examples."""
    request = classification_pb2.ClassificationRequest(**examples(model_spec={"name": model}))
    response = await predictions(router).Classify(request, timeout=TIMEOUT)
    return [[each.label for each in row.classes] for row in response.result.classifications]


def cats_and_dogs(inputs: Any) -> Any:
    rows = len(inputs["examples"])
    return {
        "classes": np.array([[b"cat", b"dog"]] * rows, object),
        "scores": np.float32([[0.25, 0.75]] * rows),
    }


def test_classify_loads_a_model_on_demand(play: Play, checkpoint: Path, tmp_path: Path) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.answer = cats_and_dogs
        worker.describe = lambda name, revision: model_pb2.Model(
            name=name, revision=revision, kind=CLASSIFIER[0].kind, call=CLASSIFIER[0].call
        )
        assert await classify(router, "tiny-2") == [["cat", "dog"]] * 2
        assert router.metric("model_changes_total", model="tiny-2", result="loaded") == 1

    repository, on_demand = make_repository(tmp_path, checkpoint), OnDemandLimits(max_bytes=10**7)
    play(scenario, settings={"repository": repository, "on_demand": on_demand})


def test_classify_waits_for_a_worker_to_load_the_model(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.answer = cats_and_dogs
        call = asyncio.ensure_future(classify(router, "rated"))
        await worker.start()
        assert await call == [["cat", "dog"]] * 2

    play(scenario, called=CLASSIFIER, started=False)


def test_regress_waits_for_a_worker_to_load_the_model(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.answer = lambda inputs: {"outputs": np.float32([[0.5], [1.5]])}
        request = regression_pb2.RegressionRequest(**examples())
        call = asyncio.ensure_future(predictions(router).Regress(request, timeout=TIMEOUT))
        await worker.start()
        assert [each.value for each in (await call).result.regressions] == [0.5, 1.5]

    play(scenario, called=REGRESSOR, started=False)


def test_classify_is_refused_where_the_signature_is_another(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        request = classification_pb2.ClassificationRequest(
            **examples(model_spec={"name": "double"})
        )
        error = await router.error(predictions(router).Classify(request, timeout=TIMEOUT))
        assert error.code() is StatusCode.INVALID_ARGUMENT
        assert "that of double is of tensorflow/serving/predict" in str(error.details())

    play(scenario, called=DOUBLE)


def test_metadata_has_the_signature(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        request = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec={"name": "double"}, metadata_field=["signature_def"]
        )
        response = await predictions(router).GetModelMetadata(request, timeout=TIMEOUT)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        assert response.metadata["signature_def"].Unpack(signatures)
        signature = signatures.signature_def["serving_default"]
        assert [dim.size for dim in signature.inputs["x"].tensor_shape.dim] == [-1, -1]
        request.metadata_field[:] = ["graph"]
        error = await router.error(predictions(router).GetModelMetadata(request, timeout=TIMEOUT))
        assert "metadata_field: must be signature_def, got ['graph']" in str(error.details())

    play(scenario, called=DOUBLE)


def test_the_answer_of_an_alias_has_its_name(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        stub, asked = predictions(router), examples(model_spec={"name": "alias"})
        worker.answer = cats_and_dogs
        classification = classification_pb2.ClassificationRequest(**asked)
        answers = [await stub.Classify(classification, timeout=TIMEOUT)]
        given = {"examples": np.array([b""], object)}
        answers.append(await predict(router, spec={"name": "alias"}, inputs=given))
        answers.append(await predict(router, spec={"name": ""}, inputs=given))
        assert [each.model_spec.name for each in answers] == ["alias", "alias", "rated"]

    aliases = {"alias": [Target(model="rated", share=1.0)]}
    play(scenario, models=(), called=CLASSIFIER, settings={"aliases": aliases})


def test_the_regression_of_an_alias_has_its_name(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.answer = lambda inputs: {"outputs": np.float32([[0.5], [1.5]])}
        request = regression_pb2.RegressionRequest(**examples(model_spec={"name": "alias"}))
        answer = await predictions(router).Regress(request, timeout=TIMEOUT)
        assert answer.model_spec.name == "alias"

    aliases = {"alias": [Target(model="rated", share=1.0)]}
    play(scenario, models=(), called=REGRESSOR, settings={"aliases": aliases})


def test_status_follows_workers(play: Play, until: Callable[..., Any]) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        models = model_service_pb2_grpc.ModelServiceStub(router.channel)

        async def state() -> int:
            request = get_model_status_pb2.GetModelStatusRequest(model_spec={"name": "double"})
            response = await models.GetModelStatus(request)
            (status,) = response.model_version_status
            assert status.version == 1
            return status.state

        assert await state() == Status.LOADING
        await worker.start()
        await until(lambda: router.free_slots > 0)
        assert await state() == Status.AVAILABLE

    play(scenario, called=DOUBLE, started=False)


def test_texts_are_embedded(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.answer = lambda inputs: {"embedding": np.ones((len(inputs["input_ids"]), 2), "f4")}
        response = await predict(
            router,
            spec={"name": "encoder"},
            inputs={"text": np.array([b"one", b"two", b"three"], object)},
        )
        assert tensors_from_messages(response.outputs)["embedding"].shape == (3, 2)

    play(scenario, called=[describe_encoder("encoder")])

"""TensorFlow Serving's own stubs, unmodified."""

from pathlib import Path

from harness.other_clients import run_with_tfserving, write_definitions
from shaperouter_service.edge.tfserving.stubs.tensorflow_serving.apis import (
    model_service_pb2,
    prediction_service_pb2,
)


def test_our_definitions_agree_with_tensorflow_servings(tmp_path: Path) -> None:
    write_definitions(
        tmp_path / "ours",
        prediction_service_pb2.DESCRIPTOR.services_by_name["PredictionService"],
        model_service_pb2.DESCRIPTOR.services_by_name["ModelService"],
    )
    modules = [f"tensorflow_serving.apis.{name}_service_pb2" for name in ("prediction", "model")]
    assert run_with_tfserving("definitions.py", str(tmp_path / "ours"), *modules) == ""

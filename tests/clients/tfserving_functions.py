"""Calls a function with TensorFlow Serving's own stubs and prints the answers as JSON.

`python tfserving_functions.py ADDRESS FUNCTION`: see tests/clients/tfserving.in.
"""

import json
import sys

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)


def main() -> None:
    address, function = sys.argv[1:]
    channel = grpc.insecure_channel(address)
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    features = np.arange(15, dtype=np.float32).reshape(5, 3) / 100
    request = predict_pb2.PredictRequest()
    request.model_spec.name = function
    request.model_spec.signature_name = "serving_default"
    request.inputs["features"].CopyFrom(tf.make_tensor_proto(features))
    scores = tf.make_ndarray(stub.Predict(request, timeout=60).outputs["scores"])
    request.inputs["features"].CopyFrom(tf.make_tensor_proto(features[:, :2]))
    try:
        stub.Predict(request, timeout=60)
        error = ""
    except grpc.RpcError as refused:
        error = f"{refused.code().name}: {refused.details()}"
    described = get_model_metadata_pb2.GetModelMetadataRequest()
    described.model_spec.name = function
    described.metadata_field.append("signature_def")
    metadata = stub.GetModelMetadata(described, timeout=60).metadata["signature_def"]
    status = get_model_status_pb2.GetModelStatusRequest()
    status.model_spec.name = function
    models = model_service_pb2_grpc.ModelServiceStub(channel)
    (version,) = models.GetModelStatus(status, timeout=60).model_version_status
    print(
        json.dumps(
            {
                "scores": scores.tolist(),
                "error": error,
                "metadata": metadata.type_url,
                "status": [version.version, version.state],
            }
        )
    )


main()

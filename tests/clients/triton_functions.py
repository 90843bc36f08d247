"""Calls a function and a text encoder with Triton's own client and prints the answers as JSON.

`python triton_functions.py ADDRESS FUNCTION ENCODER`: see tests/clients/triton.in.
"""

import json
import sys
from typing import Any

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException


def call(client: Any, model: str, **inputs: Any) -> dict[str, Any]:
    tensors = []
    for name, value in inputs.items():
        datatype = {"f": "FP32", "i": "INT64", "O": "BYTES"}[value.dtype.kind]
        tensors.append(triton.InferInput(name, list(value.shape), datatype))
        tensors[-1].set_data_from_numpy(value)
    result = client.infer(model, tensors)
    return {
        output.name: result.as_numpy(output.name).tolist()
        for output in result.get_response().outputs
    }


def main() -> None:
    address, function, encoder = sys.argv[1:]
    client = triton.InferenceServerClient(address)
    features = np.arange(15, dtype=np.float32).reshape(5, 3) / 100
    try:
        call(client, function, features=features[:, :2])
        error = ""
    except InferenceServerException as refused:
        error = f"{refused.status()}: {refused.message()}"
    found = {
        "function": call(client, function, features=features),
        "metadata": client.get_model_metadata(function, as_json=True),
        "embeddings": call(client, encoder, text=np.array([b"a cat", b"a dog"], dtype=np.object_)),
        "error": error,
    }
    print(json.dumps(found))


main()

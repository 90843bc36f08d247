"""Calls a function and text encoders over HTTP with Triton's own client; prints JSON.

`triton_http_functions.py HOST:PORT FUNCTION ENCODER CLASSIFIER`: see tests/clients/triton.in.
"""

import json
import sys
from typing import Any

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException


def call(client: Any, model: str, *, binary: bool = True, **inputs: Any) -> dict[str, Any]:
    """The outputs of a call, whose tensors are binary data or JSON in both directions."""
    tensors = []
    for name, value in inputs.items():
        datatype = {"f": "FP32", "i": "INT64", "O": "BYTES"}[value.dtype.kind]
        tensors.append(triton.InferInput(name, list(value.shape), datatype))
        tensors[-1].set_data_from_numpy(value, binary_data=binary)
    metadata = client.get_model_metadata(model)
    outputs = [
        triton.InferRequestedOutput(output["name"], binary_data=binary)
        for output in metadata["outputs"]
    ]
    result = client.infer(model, tensors, outputs=outputs)
    found = {}
    for output in result.get_response()["outputs"]:
        values = result.as_numpy(output["name"])
        if values.dtype.kind == "O":
            values = np.array([v.decode() if isinstance(v, bytes) else v for v in values])
        found[output["name"]] = values.tolist()
    return found


def main() -> None:
    address, function, encoder, classifier = sys.argv[1:]
    client = triton.InferenceServerClient(address)
    features = np.arange(15, dtype=np.float32).reshape(5, 3) / 100
    texts = np.array([b"a cat", b"a dog"], dtype=np.object_)
    ids = np.array([[5, 6, 7]])
    try:
        call(client, function, features=features[:, :2])
        error = ""
    except InferenceServerException as refused:
        error = f"{refused.status()}: {refused.message()}"
    found = {
        "function": [call(client, function, binary=b, features=features) for b in (True, False)],
        "embeddings": [call(client, encoder, binary=b, text=texts) for b in (True, False)],
        "classes": [
            call(client, classifier, binary=b, input_ids=ids, attention_mask=np.ones_like(ids))
            for b in (True, False)
        ],
        "error": error,
    }
    print(json.dumps(found))


main()

"""Calls a service with Triton's own client and prints what it answers as JSON.

Runs in an environment that has tritonclient and nothing of ours: see tests/clients/triton.in.
"""

import asyncio
import json
import queue
import sys
from typing import Any

import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException

PROMPT = "TensorFlow is"
MODEL = "demo"


def tensor(name: str, datatype: str, values: list[Any], module: Any = triton) -> Any:
    dtype = {"BYTES": np.object_, "BOOL": np.bool_, "INT32": np.int32, "FP32": np.float32}[datatype]
    encoded = [each.encode() if isinstance(each, str) else each for each in values]
    made = module.InferInput(name, [len(values)], datatype)
    made.set_data_from_numpy(np.array(encoded, dtype=dtype))
    return made


def inputs(module: Any = triton, *, stream: bool = False, max_tokens: int = 8) -> list[Any]:
    return [
        tensor("text_input", "BYTES", [PROMPT], module),
        tensor("stream", "BOOL", [stream], module),
        tensor("exclude_input_in_output", "BOOL", [True], module),
        tensor("max_tokens", "INT32", [max_tokens], module),
    ]


def plain(result: Any) -> dict[str, Any]:
    """The tensors of a result as lists of texts and numbers."""
    found = {}
    for output in result.get_response().outputs:
        values = result.as_numpy(output.name).tolist()
        found[output.name] = [v.decode() if isinstance(v, bytes) else v for v in values]
    return found


def error_of(call: Any) -> dict[str, str]:
    try:
        call()
    except InferenceServerException as error:
        return {"status": str(error.status()), "message": str(error.message())}
    return {"status": "", "message": "no error"}


def blocking(address: str) -> dict[str, Any]:
    """Every kind of unary call, and a stream of several requests."""
    client = triton.InferenceServerClient(address)
    found: dict[str, Any] = {
        "live": client.is_server_live(),
        "ready": client.is_server_ready(),
        "model_ready": client.is_model_ready(MODEL, "1"),
        "server": client.get_server_metadata(as_json=True),
        "metadata": client.get_model_metadata(MODEL, as_json=True),
        "config": client.get_model_config(MODEL, as_json=True),
        "index": client.get_model_repository_index(as_json=True),
        "infer": plain(client.infer(MODEL, inputs())),
        "sampled": [
            plain(client.infer(MODEL, inputs(), parameters={"seed": 7, "temperature": 2.0}))
            for _ in range(2)
        ],
        "errors": {
            "model": error_of(lambda: client.infer("gpt3", inputs())),
            "option": error_of(lambda: client.infer(MODEL, inputs(max_tokens=10**6))),
            "stream": error_of(lambda: client.infer(MODEL, inputs(stream=True))),
            "load": error_of(lambda: client.load_model("other")),
            "shared memory": error_of(client.get_system_shared_memory_status),
            "deadline": error_of(
                lambda: client.infer(MODEL, inputs(max_tokens=60), client_timeout=0.001)
            ),
        },
    }
    found["stream"] = streamed(client)
    found["statistics"] = client.get_inference_statistics(MODEL, as_json=True)
    client.close()
    return found


def streamed(client: Any) -> dict[str, Any]:
    """The texts and errors of several requests of one stream, by their ids."""
    responses: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(callback=lambda result, error: responses.put((result, error)))
    asked = {"0": inputs(stream=True), "1": inputs(), "wrong": inputs(max_tokens=0)}
    for request_id, tensors in asked.items():
        client.async_stream_infer(MODEL, tensors, request_id=request_id)
    texts: dict[str, list[str]] = {request_id: [] for request_id in asked}
    errors = []
    left = len(asked)
    while left:
        result, error = responses.get(timeout=240)
        if error is not None:
            errors.append(str(error))
            left -= 1
            continue
        response = result.get_response()
        texts[response.id] += plain(result)["text_output"]
        left -= response.parameters["triton_final_response"].bool_param
    client.stop_stream()
    return {"texts": texts, "errors": errors}


async def asynchronous(address: str) -> dict[str, Any]:
    """The way of Triton's sample client for vLLM: one stream, options as texts, given twice."""
    client = triton_aio.InferenceServerClient(address)
    sampling_parameters = {"temperature": "0.1", "top_p": "0.95", "max_tokens": "20"}

    def request(index: int) -> dict[str, Any]:
        options = json.dumps(sampling_parameters)
        return {
            "model_name": MODEL,
            "inputs": [
                tensor("text_input", "BYTES", [f"{PROMPT}\n"], triton_aio),
                tensor("stream", "BOOL", [True], triton_aio),
                tensor("sampling_parameters", "BYTES", [options], triton_aio),
                tensor("exclude_input_in_output", "BOOL", [True], triton_aio),
            ],
            "outputs": [triton_aio.InferRequestedOutput("text_output")],
            "request_id": str(index),
            "parameters": sampling_parameters,
        }

    async def requests() -> Any:
        for index in range(4):
            yield request(index)

    texts: dict[str, list[str]] = {str(index): [] for index in range(4)}
    errors = []
    async for result, error in client.stream_infer(requests(), stream_timeout=240):
        if error:
            errors.append(str(error))
        else:
            found = result.as_numpy("text_output")
            texts[result.get_response().id] += [each.decode() for each in found]
    one = plain(await client.infer(MODEL, inputs(triton_aio)))
    await client.close()
    return {"texts": texts, "errors": errors, "infer": one}


def main() -> None:
    address = sys.argv[1]
    found = {"blocking": blocking(address), "asynchronous": asyncio.run(asynchronous(address))}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()

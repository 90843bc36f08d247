"""Calls a service over HTTP with Triton's own client and prints what it answers as JSON.

`python triton_http_calls.py HOST:PORT`: see tests/clients/triton.in.
"""

import asyncio
import json
import sys
import urllib.request
from typing import Any

import numpy as np
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException

PROMPT = "TensorFlow is"
MODEL = "demo"


def tensor(
    name: str, datatype: str, values: list[Any], module: Any = triton, *, binary: bool = True
) -> Any:
    dtype = {"BYTES": np.object_, "BOOL": np.bool_, "INT32": np.int32, "FP32": np.float32}[datatype]
    encoded = [each.encode() if isinstance(each, str) else each for each in values]
    made = module.InferInput(name, [len(values)], datatype)
    made.set_data_from_numpy(np.array(encoded, dtype=dtype), binary_data=binary)
    return made


def inputs(module: Any = triton, *, binary: bool = True, **options: Any) -> list[Any]:
    tensors = [
        tensor("text_input", "BYTES", [PROMPT], module, binary=binary),
        tensor("exclude_input_in_output", "BOOL", [True], module, binary=binary),
    ]
    for name, value in ({"max_tokens": 8} | options).items():
        datatype = "BOOL" if isinstance(value, bool) else "INT32"
        tensors.append(tensor(name, datatype, [value], module, binary=binary))
    return tensors


def plain(result: Any) -> dict[str, Any]:
    """The tensors of a result as lists of texts and numbers."""
    found = {}
    for output in result.get_response()["outputs"]:
        values = result.as_numpy(output["name"]).tolist()
        found[output["name"]] = [v.decode() if isinstance(v, bytes) else v for v in values]
    return found


def error_of(call: Any) -> dict[str, str]:
    try:
        call()
    except InferenceServerException as error:
        return {"status": str(error.status()), "message": str(error.message())}
    return {"status": "", "message": "no error"}


def blocking(address: str) -> dict[str, Any]:
    client = triton.InferenceServerClient(address, concurrency=2)
    outputs = [triton.InferRequestedOutput("text_output", binary_data=False)]
    asked = {"seed": 7, "temperature": 2.0}
    found: dict[str, Any] = {
        "live": client.is_server_live(),
        "ready": client.is_server_ready(),
        "model_ready": client.is_model_ready(MODEL, "1"),
        "server": client.get_server_metadata(),
        "metadata": client.get_model_metadata(MODEL),
        "config": client.get_model_config(MODEL),
        "index": client.get_model_repository_index(),
        "infer": plain(client.infer(MODEL, inputs(), request_id="7")),
        "json": plain(client.infer(MODEL, inputs(binary=False), outputs=outputs)),
        "compressed": plain(
            client.infer(
                MODEL,
                inputs(),
                request_compression_algorithm="gzip",
                response_compression_algorithm="gzip",
            )
        ),
        "deferred": plain(client.async_infer(MODEL, inputs()).get_result()),
        "sampled": [plain(client.infer(MODEL, inputs(), parameters=asked)) for _ in range(2)],
        "errors": {
            "model": error_of(lambda: client.infer("gpt3", inputs())),
            "version": error_of(lambda: client.infer(MODEL, inputs(), model_version="2")),
            "option": error_of(lambda: client.infer(MODEL, inputs(max_tokens=10**6))),
            "stream": error_of(lambda: client.infer(MODEL, inputs(stream=True))),
            "sequence": error_of(lambda: client.infer(MODEL, inputs(), sequence_id=5)),
            "load": error_of(lambda: client.load_model("other")),
            "shared memory": error_of(client.get_system_shared_memory_status),
            "trace": error_of(lambda: client.get_trace_settings(MODEL)),
        },
        "statistics": client.get_inference_statistics(MODEL),
        "generated": json.loads(generated(address, "generate", stream=False)),
        "events": events(generated(address, "generate_stream", stream=True)),
    }
    client.close()
    return found


def generated(address: str, path: str, *, stream: bool) -> bytes:
    """What the generate extension answers; Triton's client has no methods for it."""
    body = {"text_input": PROMPT, "max_tokens": 8, "stream": stream}
    request = urllib.request.Request(
        f"http://{address}/v2/models/{MODEL}/{path}",
        json.dumps(body | {"parameters": {"exclude_input_in_output": True}}).encode(),
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        answer: bytes = response.read()
    return answer


def events(stream: bytes) -> list[Any]:
    lines = stream.decode().splitlines()
    return [json.loads(each.removeprefix("data: ")) for each in lines if each.startswith("data: ")]


async def asynchronous(address: str) -> dict[str, Any]:
    client = triton_aio.InferenceServerClient(address)
    results = await asyncio.gather(*(client.infer(MODEL, inputs(triton_aio)) for _ in range(4)))
    found = {
        "ready": await client.is_model_ready(MODEL),
        "metadata": await client.get_model_metadata(MODEL),
        "texts": [plain(result)["text_output"] for result in results],
    }
    await client.close()
    return found


def main() -> None:
    address = sys.argv[1]
    found = {"blocking": blocking(address), "asynchronous": asyncio.run(asynchronous(address))}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()

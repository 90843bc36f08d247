"""The requests of all doors: what each asks for, and how its answer becomes a plain value."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import httpx2 as httpx
import numpy as np

from chaos.poison_input import POISON
from harness.whispers import noise, wav
from shaperouter import Client
from shaperouter_service.edge.inference.stubs import grpc_service_pb2, grpc_service_pb2_grpc
from shaperouter_service.edge.tfserving.stubs.tensorflow_serving.apis import (
    model_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)
from shaperouter_service.edge.tfserving.tensors import tensor_to_message

# Seconds that a caller waits for one answer: longer than a request may take.
TIMEOUT = 100.0
# A deadline that some requests meet and some pass.
SHORT = 0.5
# Seconds that a slow reader pauses after each piece.
PAUSE = 0.2


@dataclass(kw_only=True)
class Line:
    """A caller's connections to one router, and the received part of a streamed answer.

    Attributes:
        client: Our own client.
        http: A client of the HTTP port.
        channel: A gRPC channel, for other stubs.
        metadata: Metadata of its calls.
        part: The beginning of a streamed answer.
    """

    client: Client
    http: httpx.Client
    channel: grpc.Channel
    metadata: tuple[tuple[str, str], ...]
    part: list[Any] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A request that is sent again and again.

    Attributes:
        name: Its name.
        weight: How often it is sent, relative to the others.
        send: Sends it, and returns its answer as a value of JSON.
        whole: Sends it so that it is answered, where `send` may leave before.
        cancelled: Whether `send` leaves before the end, with the beginning in `Line.part`.
        deadline: Its own deadline in seconds, which it may pass.
        deadly: Whether it hangs the worker that gets it.
    """

    name: str
    weight: int
    send: Callable[[Line], Any]
    whole: Callable[[Line], Any] | None = None
    cancelled: bool = False
    deadline: float | None = None
    deadly: bool = False


class HttpStatusError(Exception):
    """An error in an HTTP answer, or in its event stream."""

    def __init__(self, status: int, message: str, code: str, retry_after: float | None) -> None:
        """Takes what the answer says."""
        super().__init__(message)
        self.status, self.code, self.retry_after = status, code, retry_after


# --- Our own client -------------------------------------------------------------------------------

ENDLESS: dict[str, Any] = {"model": "endless"}


def _streamed(
    prompt: str | Sequence[int],
    *,
    pause: float = 0.0,
    leave_after: int | None = None,
    **options: Any,
) -> Callable[[Line], Any]:
    def send(line: Line) -> Any:
        with line.client.stream(prompt, timeout=TIMEOUT, **(ENDLESS | options)) as stream:
            for delta in stream:
                line.part.extend(delta.token_ids)
                if leave_after is not None and len(line.part) >= leave_after:
                    return None
                time.sleep(pause)
        return list(stream.result.token_ids)

    return send


def _generated(prompt: Any, *, timeout: float = TIMEOUT, **options: Any) -> Callable[[Line], Any]:
    def send(line: Line) -> Any:
        found = line.client.generate(prompt, timeout=timeout, **(ENDLESS | options))
        return [list(sequence.token_ids) for sequence in found.sequences]

    return send


def answer_of(model: str, line: Line) -> Any:
    """What a model whose revisions differ answers."""
    return _streamed([1, 2, 3], model=model, max_new_tokens=40)(line)


def _with_logprobs(line: Line) -> Any:
    options = {"do_sample": True, "temperature": 1.2, "seed": 7, "logprobs": 2}
    (sequence,) = line.client.generate(
        [5, 2, 3], timeout=TIMEOUT, max_new_tokens=60, **ENDLESS, **options
    ).sequences
    return [[each.chosen.token_id, float(each.chosen.logprob)] for each in sequence.logprobs]


_RECORDING = wav(noise(0.7))
_SEED = 11
# A transcript of random weights is never good enough, so each temperature would be tried.
_TEMPERATURES = [0.0, 0.6]


def _transcribed(line: Line) -> Any:
    options: dict[str, Any] = {"seed": _SEED, "temperatures": _TEMPERATURES, "best_of": 2}
    found = line.client.transcribe(_RECORDING, timeout=TIMEOUT, **options)
    return [[segment.text, list(segment.token_ids)] for segment in found.segments]


_FEATURES = np.arange(15, dtype=np.float32).reshape(5, 3) / 100


def _inferred(model: str, **inputs: Any) -> Callable[[Line], Any]:
    def send(line: Line) -> Any:
        found = line.client.infer(model, inputs, timeout=TIMEOUT)
        return {name: array.tolist() for name, array in found.outputs.items()}

    return send


# --- HTTP -----------------------------------------------------------------------------------------


def _posted(
    path: str, *, content: Callable[[dict[str, Any]], Any] | None = None, **settings: Any
) -> Callable[[Line], Any]:
    def send(line: Line) -> Any:
        answer = line.http.post(path, timeout=TIMEOUT, **settings)
        _check(answer)
        return (content or _content)(answer.json())

    return send


def _events(path: str, body: dict[str, Any]) -> Callable[[Line], Any]:
    def send(line: Line) -> Any:
        with line.http.stream(
            "POST", path, json=body | {"stream": True}, timeout=TIMEOUT
        ) as answer:
            if answer.status_code != 200:
                answer.read()
                _check(answer)
            for event in _data(answer.iter_lines()):
                # How a text is cut into pieces is not part of the answer.
                line.part.extend("".join(_content(event)))
        return list(line.part)

    return send


def _data(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    for text in lines:
        if text.startswith("data: "):
            data = text.removeprefix("data: ")
            if data == "[DONE]":
                return
            event = json.loads(data)
            if "error" in event:
                error = event["error"]
                raise HttpStatusError(
                    0, error["message"], error["code"] or "", error.get("retry_after")
                )
            yield event
    raise httpx.RemoteProtocolError("the stream ended without its last event")


def _check(answer: httpx.Response) -> None:
    if answer.status_code == 200:
        return
    try:
        error = answer.json()["error"]
    except (ValueError, KeyError):
        raise HttpStatusError(answer.status_code, answer.text, "", None) from None
    if not isinstance(error, dict):
        error = {"message": error, "code": ""}
    hint = answer.headers.get("retry-after-ms")
    after = None if hint is None else int(hint) / 1000
    raise HttpStatusError(answer.status_code, error["message"], error["code"] or "", after)


def _content(body: dict[str, Any]) -> Any:
    """The part of an answer that the request alone decides."""
    for name in ("choices", "outputs"):
        if name in body:
            return [each.get("text", each.get("data")) for each in body[name]]
    return [body["text"] if "text" in body else body["text_output"]]


# --- The Open Inference Protocol ------------------------------------------------------------------


def _model_infer(line: Line) -> Any:
    request = grpc_service_pb2.ModelInferRequest(model_name="scores")
    tensor = request.inputs.add(name="features", datatype="FP32", shape=[5, 3])
    tensor.contents.fp32_contents.extend(_FEATURES.ravel().tolist())
    stub = grpc_service_pb2_grpc.GRPCInferenceServiceStub(line.channel)
    answer = stub.ModelInfer(request, timeout=TIMEOUT, metadata=line.metadata)
    return [list(output.contents.fp32_contents) for output in answer.outputs]


# --- TensorFlow Serving ---------------------------------------------------------------------------


def _predicted(line: Line) -> Any:
    request = predict_pb2.PredictRequest(
        model_spec=model_pb2.ModelSpec(name="scores"),
        inputs={"features": tensor_to_message(_FEATURES)},
    )
    stub = prediction_service_pb2_grpc.PredictionServiceStub(line.channel)
    answer = stub.Predict(request, timeout=TIMEOUT, metadata=line.metadata)
    return [
        list(output.float_val) or output.tensor_content.hex() for output in answer.outputs.values()
    ]


_TENSOR = {"name": "features", "shape": [5, 3], "datatype": "FP32"}
_SAMPLED = {"do_sample": True, "temperature": 1.2}
_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "size": {"enum": [1, 2, 3]}},
    "required": ["name", "size"],
    "additionalProperties": False,
}

_TITLES = itertools.count()


def _following_a_schema(line: Line) -> Any:
    # Routers remember grammars, so only a new schema needs the process that makes them. A title
    # allows the same text.
    schema = _SCHEMA | {"title": f"schema {next(_TITLES)}"}
    options = {"max_new_tokens": 60, "json_schema": json.dumps(schema), "seed": 2}
    return _generated("Answer:", model="demo", **options, **_SAMPLED)(line)


# Name of the request to the model whose revisions are switched.
SWITCHED = "switched"

SAMPLES = (
    Sample(name="greedy", weight=4, send=_streamed([1, 2, 3], max_new_tokens=100)),
    Sample(name="short", weight=4, send=_generated([9, 8], max_new_tokens=8)),
    Sample(
        name="sampled",
        weight=4,
        send=_streamed([4, 2, 3], max_new_tokens=90, seed=3, **_SAMPLED),
    ),
    Sample(name="log-probabilities", weight=2, send=_with_logprobs),
    Sample(
        name="several samples",
        weight=3,
        send=_generated([7, 7, 7], max_new_tokens=50, seed=5, num_return_sequences=3, **_SAMPLED),
    ),
    Sample(name="beams", weight=3, send=_generated([2, 2, 3], max_new_tokens=40, num_beams=4)),
    Sample(
        name="expression",
        weight=2,
        send=_generated("The number is", model="demo", max_new_tokens=24, regex="[0-9]{12}"),
    ),
    Sample(name="schema", weight=2, send=_following_a_schema),
    Sample(
        name="cancelled",
        weight=3,
        send=_streamed([1, 2, 3], max_new_tokens=100, leave_after=20),
        whole=_streamed([1, 2, 3], max_new_tokens=100),
        cancelled=True,
    ),
    Sample(
        name="read slowly", weight=2, send=_streamed([6, 2, 3], max_new_tokens=100, pause=PAUSE)
    ),
    Sample(
        name="short deadline",
        weight=2,
        send=_generated([1, 2, 4], max_new_tokens=100, timeout=SHORT),
        whole=_generated([1, 2, 4], max_new_tokens=100),
        deadline=SHORT,
    ),
    Sample(name="transcription", weight=2, send=_transcribed),
    Sample(name="function", weight=4, send=_inferred("scores", features=_FEATURES)),
    Sample(
        name="innocent of poison",
        weight=2,
        send=_inferred("looping", x=np.array([1, 2], np.float32)),
    ),
    Sample(
        name="encoder",
        weight=4,
        send=_inferred("labels", input_ids=np.array([[43, 83, 14, 53, 6, 21, 74, 10, 4]])),
    ),
    Sample(
        name="HTTP events",
        weight=3,
        send=_events(
            "/v1/completions",
            {
                "model": "demo",
                "prompt": "TensorFlow is",
                "max_tokens": 40,
                "stream": True,
                "temperature": 0,
            },
        ),
    ),
    Sample(
        name="HTTP choices",
        weight=2,
        send=_posted(
            "/v1/completions",
            json={"model": "demo", "prompt": "A graph", "max_tokens": 24, "n": 2, "seed": 4},
        ),
    ),
    Sample(
        name="HTTP transcription",
        weight=2,
        send=_posted(
            "/v1/audio/transcriptions",
            data={"model": "hearing", "seed": str(_SEED), "temperature": "0.4"},
            files={"file": ("a.wav", _RECORDING)},
        ),
    ),
    Sample(
        name="HTTP inference",
        weight=3,
        send=_posted(
            "/v2/models/scores/infer",
            json={"inputs": [_TENSOR | {"data": _FEATURES.ravel().tolist()}]},
        ),
    ),
    Sample(
        name="HTTP generate",
        weight=2,
        send=_posted("/v2/models/demo/generate", json={"text_input": "Keras is", "max_tokens": 24}),
    ),
    Sample(name="inference", weight=6, send=_model_infer),
    Sample(name="prediction", weight=6, send=_predicted),
    Sample(
        name="copied text",
        weight=3,
        # Steps check tokens that followed before; see --speculate.
        send=_generated(
            "one two three four five six, one two three four five six, one two",
            model="demo",
            max_new_tokens=32,
        ),
    ),
    Sample(
        name="translation",
        weight=3,
        send=_generated([5, 6, 7, 8], model="translating", max_new_tokens=24),
    ),
    Sample(
        name=SWITCHED,
        weight=6,
        send=lambda line: answer_of("switching", line),
    ),
    Sample(
        name="HTTP chat",
        weight=3,
        send=_posted(
            "/v1/chat/completions",
            json={
                "model": "demo",
                "messages": [{"role": "user", "content": "What is a graph?"}],
                "max_tokens": 24,
                "temperature": 0,
            },
            content=lambda body: [each["message"]["content"] for each in body["choices"]],
        ),
    ),
    Sample(
        name="HTTP response",
        weight=2,
        send=_posted(
            "/v1/responses",
            json={"model": "demo", "input": "What is a slot?", "max_output_tokens": 24},
            content=lambda body: [part["text"] for part in body["output"][0]["content"]],
        ),
    ),
    Sample(
        name="HTTP embeddings",
        weight=6,
        send=_posted(
            "/v1/embeddings",
            json={"model": "embedding", "input": [" 5 17 23", " 8"]},
            content=lambda body: [each["embedding"] for each in body["data"]],
        ),
    ),
    Sample(
        name="HTTP ranks",
        weight=4,
        send=_posted(
            "/v1/rerank",
            json={"model": "ranking", "query": " 5 6", "documents": [" 7 8", " 9", " 11 12"]},
            content=lambda body: [
                [each["index"], each["relevance_score"]] for each in body["results"]
            ],
        ),
    ),
)

POISONED = Sample(
    name="poison",
    weight=0,
    send=_inferred("looping", x=np.array([1, POISON], np.float32)),
    deadline=TIMEOUT,
    deadly=True,
)

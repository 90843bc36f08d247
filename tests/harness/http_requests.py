"""Mutated requests to every door on the HTTP port, for a model `tiny` and a function `double`."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np

from harness.forms import FORM, form
from harness.http_mutation import VALUES, mutated, mutated_bytes, with_other_values
from harness.transcribing import tone
from harness.whispers import wav

RECORDING = wav(tone(0.1))
# A template of a model that calls tools and reads all fields of messages.
TEMPLATE = """{# <tool_call> #}{{ tools }}{{ enable_thinking }}
{%- for message in messages %}{{ message.role + message.content }}{{ message.tool_calls }}
{%- endfor %}"""
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {}}}
BODIES: list[tuple[str, dict[str, Any]]] = [
    (
        "/v1/completions",
        {"model": "tiny", "prompt": ["a", [1, 2]], "n": 2, "seed": 3, "logprobs": 2, "stop": "x"},
    ),
    ("/v1/completions", {"model": "tiny", "prompt": "a", "stream": True, "logit_bias": {"3": 1}}),
    (
        "/v1/chat/completions",
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "hello"}],
            "tools": [TOOL],
            "tool_choice": "auto",
            "parallel_tool_calls": False,
            "stream_options": {"include_usage": True},
            "top_p": 0.5,
        },
    ),
    (
        "/v1/responses",
        {
            "model": "tiny",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
                {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "x"},
            ],
            "instructions": "brief",
            "tools": [TOOL["function"] | {"type": "function"}],
            "reasoning": {},
            "text": {"format": {"type": "text"}},
            "max_output_tokens": 3,
        },
    ),
    ("/v1/responses", {"model": "tiny", "input": "hello", "stream": True}),
]
NAMES = ["unheard", "temperature", "best_of", "num_beams"]
FORM_FIELDS = {
    "model": "tiny", "language": "en", "response_format": "verbose_json", "temperature": "0.5",
    "timestamp_granularities[]": "segment", "stream": "false", "seed": "7", "prompt": "a",
}  # fmt: skip
FORM_TEXTS = [
    "", "x" * 300, "-1", "2147483648", "9" * 5000, "1e308", "-inf", "nan", "true", "\ud800",
    "{}", "pcm_s16le", "text", "srt", "word", "0", "\x00",
]  # fmt: skip
FORM_NAMES = [
    *FORM_FIELDS, "unheard", "num_beams", "temperatures", "file", "audio_format", "sample_rate",
    "channels", "step_seconds", "best_of", "no_speech_threshold", "include[]", "[]", "",
]  # fmt: skip


def mutated_json(source: random.Random) -> bytes:
    """A request of JSON with a few changes of its values."""
    path, body = source.choice(BODIES)
    return mutated(source, path, with_other_values(source, body, NAMES))


def mutated_form(source: random.Random, *, model: str = "tiny") -> bytes:
    """A request of a form with a few changes of its fields and of their order."""
    path = source.choice(["/v1/audio/transcriptions", "/v1/audio/translations"])
    texts = [
        (name, text.encode(errors="surrogatepass"))
        for name, text in [
            *(FORM_FIELDS | {"model": model}).items(),
            *(
                (source.choice(FORM_NAMES), source.choice(FORM_TEXTS))
                for _ in range(source.choice([0, 0, 1, 2]))
            ),
        ]
    ]
    for _ in range(source.choice([0, 0, 1, 2])):
        texts.pop(source.randrange(len(texts)))
    texts.insert(source.randrange(len(texts) + 1), ("file", RECORDING))
    headers = [f"content-type: {FORM['content-type']}".encode()]
    return mutated_bytes(source, path, form(*texts), headers=headers)


# --- Open Inference -------------------------------------------------------------------------------

_X = {"name": "x", "shape": [2, 3], "datatype": "FP32"}
_RAW = np.zeros([2, 3], np.float32).tobytes()
_GENERATE = {"text_input": "a", "max_tokens": 2, "parameters": {"stop_words": ["x"]}}
# Paths, bodies, the binary data after them, and names of fields that they could have.
INFERENCES: list[tuple[str, dict[str, Any], bytes, list[str]]] = [
    ("double/infer", {"inputs": [_X | {"data": [0.5] * 6}]}, b"", ["id", "outputs", "parameters"]),
    (
        "double/versions/1/infer",
        {
            "inputs": [_X | {"parameters": {"binary_data_size": len(_RAW)}}],
            "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
        },
        _RAW,
        ["id", "parameters"],
    ),
    (
        "tiny/infer",
        {"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["a"]}]},
        b"",
        ["id", "outputs", "parameters"],
    ),
    ("tiny/generate", _GENERATE, b"", ["id", "seed", "logit_bias", "sampling_parameters"]),
    ("tiny/generate_stream", _GENERATE | {"stream": True}, b"", ["id", "temperature", "stop"]),
]


def mutated_inference(source: random.Random) -> bytes:
    """A request of Open Inference with a few changes of its values."""
    path, body, tail, names = source.choice(INFERENCES)
    body = with_other_values(source, body, names)
    if isinstance(body.get("inputs"), list) and source.random() < 0.5:
        fields = ["shape", "datatype", "data", "parameters", "name", "unheard"]
        body["inputs"] = [
            with_other_values(source, each, fields) if isinstance(each, dict) else each
            for each in body["inputs"]
        ]
    if source.random() < 0.1:
        body["parameters"] = {source.choice(["stream", "x", "seed"]): source.choice(VALUES)}
    length = len(json.dumps(body)) + source.choice([0] * 6 + [-1, 1, 10**6])
    headers = [b"inference-header-content-length: %d" % length] if tail else []
    return mutated(source, f"/v2/models/{path}", body, tail=tail, headers=headers)

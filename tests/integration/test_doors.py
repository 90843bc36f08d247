"""The same request gets the same text through every door."""

import json
import random
from typing import Any

import grpc
import httpx2 as httpx

from harness.open_inference import infer_request, tensors_of
from harness.service import Service
from harness.waiting import TIMEOUT
from shaperouter import Client
from shaperouter_service.edge.inference.stubs import grpc_service_pb2_grpc

CASES = 24
PROMPTS = ("TensorFlow is", "def main():", "The naïve café", "1, 2, 3, ")
REASONS = {"eos": "stop", "stop": "stop", "length": "length"}


def random_options(rng: random.Random) -> dict[str, Any]:
    """Options, of which a third each sample, search with beams, and neither."""
    options: dict[str, Any] = {"max_new_tokens": rng.randrange(1, 24), "do_sample": False}
    kind = rng.randrange(3)
    if kind == 0:
        options |= {
            "do_sample": True,
            "seed": rng.randrange(2**40),
            "temperature": rng.choice([0.5, 1.0, 1.7]),
            "top_k": rng.choice([0, 3, 50]),
            "top_p": rng.choice([0.4, 1.0]),
        }
    elif kind == 1:
        options |= {"num_beams": rng.choice([2, 4]), "length_penalty": rng.choice([-1.0, 2.0])}
    for name, value in {
        "repetition_penalty": rng.choice([0.9, 1.3]),
        "no_repeat_ngram_size": 2,
        "stop": ["e", " of"],
        "regex": "[a-z ]{3,60}",
    }.items():
        if rng.random() < 0.3:
            options[name] = value
    return options


def test_every_door_gives_a_request_the_same_text(demo: Service) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    with (
        Client(demo.address) as client,
        httpx.Client(base_url=demo.http_url, timeout=TIMEOUT) as http,
        grpc.insecure_channel(demo.address) as channel,
    ):
        triton = grpc_service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for _ in range(CASES):
            prompt, options = rng.choice(PROMPTS), random_options(rng)
            (sequence,) = client.generate(prompt, **options).sequences
            expected = sequence.text, REASONS[sequence.finish_reason.value]

            openai = http.post(
                "/v1/completions", json={"model": "demo", "prompt": prompt, **options}
            ).json()["choices"][0]
            assert (openai["text"], openai["finish_reason"]) == expected, (prompt, options)

            asked = {"text_input": prompt, "exclude_input_in_output": True}
            over_http = http.post("/v2/models/demo/generate", json=asked | options).json()
            found = over_http["text_output"], REASONS[over_http["finish_reason"]]
            assert found == expected, (prompt, options)

            request = infer_request(**asked, sampling_parameters=json.dumps(options))
            request.model_name = "demo"
            tensors = tensors_of(triton.ModelInfer(request))
            found = tensors["text_output"][0], REASONS[tensors["finish_reason"][0]]
            assert found == expected, (prompt, options)

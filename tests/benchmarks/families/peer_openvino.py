"""OpenVINO, with a model that optimum-intel has exported: a stateful inference request a step."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from generation.contestant import Contestant, Generated, serve

from common.protocol import arguments

# By default it computes in bfloat16 if the processor can, and stores caches in 8 bits.
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}


class OpenVino(Contestant):
    """A compiled model; the next tokens are found by NumPy, so that nothing else is measured."""

    packages = ("openvino", "optimum-intel", "nncf")

    def __init__(self, model: Path, *, threads: int, exact: bool) -> None:
        settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
        compiled = openvino.Core().compile_model(
            model / "openvino_model.xml", "CPU", settings | (EXACT if exact else {})
        )
        self._inputs = {each.get_any_name() for each in compiled.inputs}
        self._request = compiled.create_infer_request()

    def generate(
        self, prompts: Sequence[Sequence[int]], new_tokens: int, options: Mapping[str, Any]
    ) -> Generated:
        if options:
            raise ValueError(f"it has no {', '.join(options)}")
        self._request.reset_state()
        rows, length = len(prompts), len(prompts[0])
        tokens, made = np.array(prompts, np.int64), []
        for _ in range(new_tokens):
            first = length - tokens.shape[1]
            given = {
                "input_ids": tokens,
                "attention_mask": np.ones((rows, length), np.int64),
                "position_ids": np.tile(np.arange(first, length, dtype=np.int64), (rows, 1)),
                "beam_idx": np.arange(rows, dtype=np.int32),
            }
            self._request.infer(
                {name: value for name, value in given.items() if name in self._inputs},
                share_inputs=True,
            )
            logits = self._request.get_output_tensor(0).data
            tokens = logits[:, -1].argmax(-1)[:, np.newaxis].astype(np.int64)
            made.append(tokens[:, 0].tolist())
            length += 1
        return Generated(token_ids=[list(ids) for ids in zip(*made, strict=True)])


@contextmanager
def load() -> Iterator[Contestant]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--exact", action="store_true", help="compute in float32")
    given = arguments(parser)
    yield OpenVino(given.model, threads=given.threads, exact=given.exact)


if __name__ == "__main__":
    serve(load())

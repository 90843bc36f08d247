"""OpenVINO: in float32, in its default type, or with weights and activations in int8."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nncf
import numpy as np
import openvino

from common.protocol import arguments

from .contestant import Contestant, Library, pooled, serve
from .encoders import Hidden, example, load_tokenizer, tokenized
from .workloads import workloads

# Texts that the ranges of activations are measured with.
CALIBRATION = 64


class OpenVino(Library):
    """A compiled model."""

    packages = ("openvino",)

    def __init__(self, model: Path, dtype: str, threads: int) -> None:
        self._tokenizer = load_tokenizer(model)
        converted = openvino.convert_model(Hidden(model), example_input=example())
        if dtype == "int8":
            converted = self._quantized(converted, model)
        settings: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
        if dtype == "float32":
            settings["INFERENCE_PRECISION_HINT"] = "f32"
        self._model = openvino.Core().compile_model(converted, "CPU", settings)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        inputs = tokenized(self._tokenizer, texts)
        hidden = self._model(list(inputs.values()))[0]
        return pooled(hidden, inputs["attention_mask"])

    def _quantized(self, converted: openvino.Model, model: Path) -> openvino.Model:
        texts = [text for call in workloads(model)[1].calls for text in call]
        inputs = [list(tokenized(self._tokenizer, [each]).values()) for each in texts[:CALIBRATION]]
        return nncf.quantize(converted, nncf.Dataset(inputs), model_type=nncf.ModelType.TRANSFORMER)


@contextmanager
def load() -> Iterator[Contestant]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", required=True)
    given = arguments(parser)
    yield OpenVino(given.model, given.dtype, given.threads)


if __name__ == "__main__":
    serve(load())

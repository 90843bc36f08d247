"""ONNX Runtime, with weights in float32 or int8: the runtime of fastembed."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic

from common.protocol import arguments

from .contestant import Contestant, Library, pooled, serve
from .encoders import INPUTS, Hidden, example, load_tokenizer, tokenized


class OnnxRuntime(Library):
    """A session with the exported model."""

    packages = ("onnxruntime",)

    def __init__(self, model: Path, exported: Path, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(
            str(exported), options, providers=["CPUExecutionProvider"]
        )
        self._tokenizer = load_tokenizer(model)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        inputs = tokenized(self._tokenizer, texts)
        (hidden,) = self._session.run(None, inputs)
        return pooled(hidden, inputs["attention_mask"])


def exported(model: Path, dtype: str, work: Path) -> Path:
    """Exports the model, unless that was done before."""
    whole, rounded = work / "minilm.onnx", work / "minilm-int8.onnx"
    if not whole.exists():
        axes = {name: {0: "batch", 1: "length"} for name in (*INPUTS, "hidden")}
        torch.onnx.export(
            Hidden(model),
            example(),
            str(whole),
            input_names=list(INPUTS),
            output_names=["hidden"],
            dynamic_axes=axes,
            dynamo=False,
        )
    if dtype == "int8" and not rounded.exists():
        quantize_dynamic(str(whole), str(rounded), weight_type=QuantType.QInt8, per_channel=True)
    return rounded if dtype == "int8" else whole


@contextmanager
def load() -> Iterator[Contestant]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--work", type=Path, required=True)
    given = arguments(parser)
    yield OnnxRuntime(given.model, exported(given.model, given.dtype, given.work), given.threads)


if __name__ == "__main__":
    serve(load())

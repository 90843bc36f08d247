"""Text encoders over the golden checkpoints, and their inputs in any shape."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from shaperouter_service.models.encoders import EncoderModel

GOLDENS = Path(__file__).parents[1] / "goldens"
ENCODERS = (
    "bert-embedder",
    "bert-reranker",
    "bert-tagger",
    "roberta-labels",
    "xlm-roberta-embedder",
    "xlm-roberta-tagger",
    "distilbert-classifier",
    "distilbert-embedder",
    "mpnet-embedder",
    "mpnet-classifier",
)


@dataclass(frozen=True, kw_only=True)
class EncoderGolden:
    """The reference's answers for one checkpoint.

    Attributes:
        name: Name of the checkpoint.
        output: Name of the output.
        cases: Texts, with what each is `expected` to give.
    """

    name: str
    output: str
    cases: Sequence[dict[str, Any]]

    @property
    def directory(self) -> Path:
        """Directory of the checkpoint."""
        return GOLDENS / self.name

    @classmethod
    def read(cls, name: str) -> "EncoderGolden":
        """Reads the file of a checkpoint."""
        content = json.loads((GOLDENS / f"{name}.json").read_text())
        return cls(name=name, output=content["output"], cases=content["cases"])


def batch(
    model: EncoderModel, texts: Sequence[dict[str, Any]], *, rows: int, length: int, pad: int = 0
) -> dict[str, tf.Tensor]:
    """Inputs of texts in a batch of a shape; the rest of the batch is padding."""
    names = [each.name for each in model.spec.inputs]
    arrays = {name: np.full([rows, length], pad, np.int64) for name in names}
    arrays["attention_mask"][:] = 0
    for row, text in enumerate(texts):
        size = len(text["input_ids"])
        for name in names:
            arrays[name][row, :size] = text.get(name, 1 if name == "attention_mask" else 0)
    return {name: tf.constant(array) for name, array in arrays.items()}


def call(model: EncoderModel, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Compiles a model for the shape of some inputs, and calls it once."""

    def compute(inputs: dict[str, tf.Tensor]) -> Any:
        return model.call(model.weights.read(), inputs)

    found: dict[str, tf.Tensor] = tf.function(compute, jit_compile=True, autograph=False)(inputs)
    return found


def answers(
    model: EncoderModel, texts: Sequence[dict[str, Any]], *, rows: int, length: int, pad: int = 0
) -> list[np.ndarray]:
    """What a model answers for each text in a batch of a shape, without padding."""
    (found,) = call(model, batch(model, texts, rows=rows, length=length, pad=pad)).values()
    per_token = len(model.spec.outputs[0].shape) == 3
    return [
        row[: len(text["input_ids"])] if per_token else row
        for row, text in zip(found.numpy(), texts, strict=False)
    ]

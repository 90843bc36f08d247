"""Accuracy of weights and caches of fewer bits: the demo model's perplexity by their types.

The text is the one held out from training, in windows as long as the model's context, as in the
model card. `--publish` writes the figures into the card.

Run by ``make rounding``.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from transformers import AutoTokenizer

import shaperouter_service
from common.publishing import publish_section
from harness.engine import prompt_attention
from shaperouter_service.kernels import choose
from shaperouter_service.models import DType, Model, load_model, resolve_cache_dtype

DEMO = Path(shaperouter_service.__file__).parent / "builtin" / "demo"
# Of the weights and of caches.
TYPES: Sequence[tuple[DType, Literal["float32", "bfloat16"]]] = (
    ("float32", "float32"),
    ("float32", "bfloat16"),
    ("bfloat16", "float32"),
    ("bfloat16", "bfloat16"),
    ("int8", "float32"),
    ("int8", "bfloat16"),
    ("int4", "float32"),
    ("int4", "bfloat16"),
)
END_OF_TEXT_ID = 0


def main() -> int:
    """Measures and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "heldout", type=Path, help="text held out by service/training/demo/corpus.py"
    )
    parser.add_argument(
        "--publish", action="store_true", help="publish the figures in the model card"
    )
    arguments = parser.parse_args()
    if choose("auto") is None:
        return 1
    with arguments.heldout.open(encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    encoded = AutoTokenizer.from_pretrained(DEMO)(documents, add_special_tokens=False)["input_ids"]
    tokens = np.concatenate([[END_OF_TEXT_ID, *ids] for ids in encoded]).astype(np.int32)
    rows, exact = [], 0.0
    for dtype, caches in TYPES:
        cache_dtype = resolve_cache_dtype(caches, dtype, packed=True)
        model = load_model("demo", DEMO, dtype, packed=True, cache_dtype=cache_dtype)
        found = _perplexity(model, tokens)
        exact = exact or found
        more = f"{found / exact - 1:+.2%}" if rows else ""
        row = f"| {dtype} | {caches} | {found:.3f} | {more} | {model.weight_bytes / 1e6:.1f} |"
        print(row, flush=True)
        rows.append(row)
    if arguments.publish:
        text = "\n".join(
            [
                "As the service holds them (`--dtype`, `--kv-cache-dtype`), with the text above;",
                "by `make rounding`.",
                "",
                "| weights | caches | perplexity | more than float32 | MB of weights |",
                "| --- | --- | ---: | ---: | ---: |",
                *rows,
            ]
        )
        card = DEMO / "README.md"
        publish_section("## Weights of fewer bits", text, before="## Limits", document=card)
    return 0


def _perplexity(model: Model, tokens: np.ndarray) -> float:
    """The perplexity of a text, from its second token on."""
    length = model.family.max_length

    def losses(window: tf.Tensor) -> tf.Tensor:
        """The negative log-probability of each token from the second on."""
        positions = tf.range(length)[tf.newaxis]
        hidden = model.family.forward(
            model.weights.read(),
            window[tf.newaxis, :-1],
            positions,
            prompt_attention(model, length),
        )
        logits = model.family.logits(model.weights.read(), hidden)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(window[1:], logits[0])

    compiled = tf.function(losses, jit_compile=True, autograph=False)
    total = 0.0
    for start in range(0, len(tokens) - 1, length):
        window = tokens[start : start + length + 1]
        # The padding of the last window comes after all counted tokens.
        padded = np.pad(window, [0, length + 1 - len(window)])
        total += float(compiled(tf.constant(padded)).numpy()[: len(window) - 1].sum())
    return math.exp(total / (len(tokens) - 1))


if __name__ == "__main__":
    sys.exit(main())

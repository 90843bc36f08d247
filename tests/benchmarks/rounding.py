"""What weights of fewer bits cost in accuracy: the demo model's perplexity, by their type.

The text is this repository's documentation, which the model has never seen. Perplexity is per
token, of pieces as long as the model's positions.

Run by ``make rounding``.
"""

import math
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf
from transformers import AutoTokenizer

import shaperouter_service
from harness.engine import prompt_attention
from shaperouter_service.kernels import choose
from shaperouter_service.models import DType, Model, load_model

REPOSITORY = Path(__file__).parents[2]
DEMO = Path(shaperouter_service.__file__).parent / "builtin" / "demo"
TYPES: tuple[DType, ...] = ("float32", "bfloat16", "int8")


def main() -> int:
    """Measures and prints."""
    if choose("auto") is None:
        return 1
    text = "\n\n".join(
        path.read_text(encoding="utf-8")
        for path in sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")])
    )
    tokens = AutoTokenizer.from_pretrained(DEMO)(text, verbose=False)["input_ids"]
    exact = 0.0
    for dtype in TYPES:
        model = load_model("demo", DEMO, dtype, packed=True)
        found = _perplexity(model, tokens)
        exact = exact or found
        print(
            f"{dtype}: perplexity {found:.3f} of {len(tokens)} tokens ({found / exact - 1:+.2%}), "
            f"{model.weight_bytes / 1e6:.1f} MB of weights",
            flush=True,
        )
    return 0


def _perplexity(model: Model, tokens: list[int]) -> float:
    length = model.family.max_length

    def losses(piece: tf.Tensor) -> tf.Tensor:
        """Of each token but the first, what it was not expected by."""
        positions = tf.range(length)[tf.newaxis]
        hidden = model.family.forward(
            model.weights.read(), piece[tf.newaxis], positions, prompt_attention(model, length)
        )
        logits = model.family.logits(model.weights.read(), hidden)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(piece[1:], logits[0, :-1])

    compiled = tf.function(losses, jit_compile=True, autograph=False)
    pieces = [tokens[start : start + length] for start in range(0, len(tokens), length)]
    found = [compiled(tf.constant(piece)).numpy() for piece in pieces if len(piece) == length]
    return math.exp(sum(piece.sum() for piece in found) / sum(piece.size for piece in found))


if __name__ == "__main__":
    sys.exit(main())

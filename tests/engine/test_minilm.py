"""all-MiniLM-L6-v2, with its real weights, embeds texts as sentence-transformers does."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from harness.encoders import GOLDENS, answers
from harness.tools import real_model
from shaperouter_service.models.encoders import load_encoder

pytestmark = pytest.mark.usefixtures("native_kernels")

# The first texts are questions, each followed by its answer.
QUESTIONS = 6


@pytest.mark.parametrize(("dtype", "minimum"), [("float32", 0.999999), ("int8", 0.99)])
def test_embeddings_of_real_texts_equal_the_reference(dtype: str, minimum: float) -> None:
    texts = json.loads((GOLDENS / "minilm.json").read_text(encoding="utf-8"))
    expected = load_file(GOLDENS / "minilm.safetensors")["embeddings"]
    model = load_encoder("m", real_model("all-MiniLM-L6-v2"), dtype, packed=True)  # type: ignore[arg-type]
    assert model.max_length == 256
    found = np.stack(
        answers(
            model,
            [{"input_ids": text["token_ids"]} for text in texts],
            rows=len(texts),
            length=model.max_length,
        )
    )
    assert (found * expected).sum(axis=1).min() > minimum
    questions, answered = found[: 2 * QUESTIONS : 2], found[1 : 2 * QUESTIONS : 2]
    assert (questions @ answered.T).argmax(axis=1).tolist() == list(range(QUESTIONS))

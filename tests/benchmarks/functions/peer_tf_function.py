"""The way of Transformers' guide: `tf.function(model, jit_compile=True)` on padded batches."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from transformers import BertConfig, TFBertModel
from transformers.modeling_tf_pytorch_utils import load_pytorch_state_dict_in_tf2_model

from common.protocol import arguments

from .contestant import Contestant, Library, pooled, serve

MAX_TOKENS = 256
SHORTEST = 16


class TfFunction(Library):
    """Each shape is traced and compiled once; rows and lengths are padded to powers of two."""

    packages = ("tensorflow-cpu", "transformers")

    def __init__(self, model: Path, threads: int) -> None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        # See generation/peer_transformers_tf.py.
        loaded = load_pytorch_state_dict_in_tf2_model(
            TFBertModel(BertConfig.from_pretrained(model)), load_file(model / "model.safetensors")
        )
        self._function = tf.function(
            lambda **inputs: loaded(**inputs).last_hidden_state, jit_compile=True
        )
        self._tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        self._tokenizer.enable_truncation(MAX_TOKENS)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        found = self._tokenizer.encode_batch(list(texts))
        longest = max(sum(each.attention_mask) for each in found)
        rows, length = _power(len(texts), 1), _power(longest, SHORTEST)
        ids, mask = np.zeros((rows, length), np.int32), np.zeros((rows, length), np.int32)
        for row, each in enumerate(found):
            tokens = sum(each.attention_mask)
            ids[row, :tokens], mask[row, :tokens] = each.ids[:tokens], 1
        hidden = self._function(
            input_ids=tf.constant(ids),
            attention_mask=tf.constant(mask),
            token_type_ids=tf.zeros_like(ids),
        ).numpy()
        return pooled(hidden[: len(texts)], mask[: len(texts)])


def _power(size: int, least: int) -> int:
    while least < size:
        least *= 2
    return least


@contextmanager
def load() -> Iterator[Contestant]:
    given = arguments()
    yield TfFunction(given.model, given.threads)


if __name__ == "__main__":
    serve(load())

"""llama.cpp, by the C interface in llama-cpp-python's package: as in its own `llama-bench`.

A step is a call of `llama_decode` and the largest logit of each sequence; nothing samples and
nothing is decoded to text.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from generation.contestant import Contestant, Generated, serve

from common.protocol import arguments

# Places for each sequence; more than any workload needs.
PLACES, SEQUENCES = 256, 8
# The defaults of its programs for the largest number of tokens that one call takes, whole and in
# one piece of work.
BATCH, PIECE = 2048, 512


class LlamaCpp(Contestant):
    """A GGUF model and its context, with the library's defaults for attention and caches."""

    packages = ("llama_cpp_python",)

    def __init__(self, model: Path, *, threads: int) -> None:
        llama_cpp.llama_backend_init()
        loading = llama_cpp.llama_model_default_params()
        self._model = llama_cpp.llama_model_load_from_file(str(model).encode(), loading)
        if not self._model:
            raise ValueError(f"cannot load {model}")
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx, settings.n_seq_max = PLACES * SEQUENCES, SEQUENCES
        settings.n_batch, settings.n_ubatch = BATCH, PIECE
        settings.n_threads = settings.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, settings)
        self._vocabulary = llama_cpp.llama_vocab_n_tokens(
            llama_cpp.llama_model_get_vocab(self._model)
        )
        self._batch = llama_cpp.llama_batch_init(BATCH, 0, 1)

    def generate(
        self, prompts: Sequence[Sequence[int]], new_tokens: int, options: Mapping[str, Any]
    ) -> Generated:
        if options:
            raise ValueError(f"it has no {', '.join(options)}")
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), False)
        last = self._step(prompts, 0)
        made = [last]
        for step in range(1, new_tokens):
            last = self._step([[token] for token in last], len(prompts[0]) + step - 1)
            made.append(last)
        return Generated(token_ids=[list(tokens) for tokens in zip(*made, strict=True)])

    def _step(self, rows: Sequence[Sequence[int]], position: int) -> list[int]:
        """Reads tokens of each sequence from a position on, and returns the next ones."""
        batch, count, ends = self._batch, 0, []
        for sequence, tokens in enumerate(rows):
            for place, token in enumerate(tokens):
                batch.token[count] = token
                batch.pos[count] = position + place
                batch.n_seq_id[count] = 1
                batch.seq_id[count][0] = sequence
                batch.logits[count] = place == len(tokens) - 1
                count += 1
            ends.append(count - 1)
        batch.n_tokens = count
        if status := llama_cpp.llama_decode(self._context, batch):
            raise ValueError(f"llama_decode returned {status}")
        return [self._best(end) for end in ends]

    def _best(self, index: int) -> int:
        logits = llama_cpp.llama_get_logits_ith(self._context, index)
        return int(np.ctypeslib.as_array(logits, shape=(self._vocabulary,)).argmax())


@contextmanager
def load() -> Iterator[Contestant]:
    given = arguments()
    yield LlamaCpp(given.model, threads=given.threads)


if __name__ == "__main__":
    serve(load())

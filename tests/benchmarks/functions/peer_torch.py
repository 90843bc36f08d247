"""sentence-transformers on PyTorch."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from common.protocol import arguments

from .contestant import Contestant, Library, serve


class SentenceTransformers(Library):
    """`SentenceTransformer.encode`."""

    packages = ("sentence-transformers", "torch", "transformers")

    def __init__(self, model: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self._model = SentenceTransformer(model, device="cpu")

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.asarray(
            self._model.encode(list(texts), batch_size=len(texts), show_progress_bar=False)
        )


@contextmanager
def load() -> Iterator[Contestant]:
    given = arguments()
    yield SentenceTransformers(str(given.model), given.threads)


if __name__ == "__main__":
    serve(load())

"""Base of a contestant: a way to embed texts, and its answers to the conductor.

::

    <- {"versions": {…}, "ways": ["chunks of 32", …]}                          once it has loaded
    -> {"task": "embed", "calls": [["a text", …], …], "callers": 32, "way": "chunks of 8"}
    <- {"seconds": 1.2, "latencies": [0.04, …], "vectors": [[0.1, …], …]}
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from common.protocol import converse

from .calling import timed_calls
from .library_server import called_by_others

# Ways to cut a list of texts, sorted by length, which saves padding.
CHUNKS = {f"chunks of {size}": size for size in (32, 8, 1)}


class Contestant(ABC):
    """A way to embed texts, loaded and ready.

    Attributes:
        packages: Packages whose versions are reported.
        ways: Ways to cut lists of texts; the conductor takes the fastest.
    """

    packages: Sequence[str]
    ways: Sequence[str]

    @abstractmethod
    def call(self, calls: Sequence[Sequence[str]], callers: int, way: str) -> Mapping[str, Any]:
        """Makes calls, this many at a time; see `timed_calls`."""


class Library(Contestant):
    """A library that embeds one list of texts at a time.

    One caller calls it in its own process; several callers call a plain gRPC server of it.
    """

    ways = tuple(CHUNKS)

    @abstractmethod
    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Embeds texts together, padded to the longest; [n, width]."""

    def call(self, calls: Sequence[Sequence[str]], callers: int, way: str) -> Mapping[str, Any]:
        def embed(texts: Sequence[str]) -> np.ndarray:
            return self._in_chunks(texts, CHUNKS[way])

        make_calls = timed_calls if callers == 1 else called_by_others
        return make_calls(embed, calls, callers)

    def _in_chunks(self, texts: Sequence[str], size: int) -> np.ndarray:
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        chunks = [order[start : start + size] for start in range(0, len(order), size)]
        vectors = np.concatenate([self.embed([texts[i] for i in chunk]) for chunk in chunks])
        return np.asarray(vectors[np.argsort(order)])


def serve(loading: AbstractContextManager[Contestant]) -> None:
    """Loads a contestant, and answers questions until standard input ends."""
    converse(loading, _answer_to, lambda contestant: {"ways": list(contestant.ways)})


def _answer_to(question: Mapping[str, Any], contestant: Contestant) -> Mapping[str, Any]:
    return contestant.call(question["calls"], question["callers"], question["way"])


def pooled(hidden: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The model's embeddings: the mean of the tokens' states, of length 1.

    Args:
        hidden: [n, length, width].
        mask: [n, length], 1 for tokens.
    """
    weights = mask[..., np.newaxis].astype(hidden.dtype)
    means = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
    return np.asarray(means / np.linalg.norm(means, axis=1, keepdims=True))

"""Calls with texts, timed."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

# Embeds the texts of a call, from any thread; [n, width] float32.
Embed = Callable[[Sequence[str]], np.ndarray]


def timed_calls(embed: Embed, calls: Sequence[Sequence[str]], callers: int) -> dict[str, Any]:
    """Makes the calls, this many at a time.

    Returns:
        Seconds of all, the latency of each call in seconds, and the embeddings of all texts.
    """

    def timed(texts: Sequence[str]) -> tuple[float, np.ndarray]:
        began = time.perf_counter()
        vectors = embed(texts)
        return time.perf_counter() - began, vectors

    with ThreadPoolExecutor(callers) as threads:
        started = time.perf_counter()
        answers = list(threads.map(timed, calls))
        seconds = time.perf_counter() - started
    vectors = np.concatenate([vectors for _, vectors in answers])
    return {
        "seconds": seconds,
        "latencies": [latency for latency, _ in answers],
        "vectors": np.round(vectors.astype(float), 6).tolist(),
    }

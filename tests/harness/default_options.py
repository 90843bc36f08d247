"""What a worker tells of a checkpoint that says nothing about generation."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from shaperouter.v1 import generation_pb2

# The defaults of Transformers' generate, but for `max_new_tokens`.
NEUTRAL: Mapping[str, Any] = MappingProxyType(
    {
        "max_new_tokens": 64,
        "min_new_tokens": 0,
        "do_sample": False,
        "temperature": 1.0,
        "top_k": 50,
        "top_p": 1.0,
        "min_p": 0.0,
        "typical_p": 1.0,
        "repetition_penalty": 1.0,
        "no_repeat_ngram_size": 0,
        "num_beams": 1,
        "num_return_sequences": 1,
        "length_penalty": 1.0,
        "early_stopping": generation_pb2.EARLY_STOPPING_HEURISTIC,
    }
)


def default_options(**changes: Any) -> generation_pb2.GenerationOptions:
    """Every option that has a default; `changes` are those of a checkpoint that says something."""
    return generation_pb2.GenerationOptions(**dict(NEUTRAL) | changes)

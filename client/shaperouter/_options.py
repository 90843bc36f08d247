"""The options of a generation, as keyword arguments."""

from collections.abc import Sequence
from typing import TypedDict


class GenerationOptions(TypedDict, total=False):
    """How to generate: keyword arguments of ``generate`` and ``stream``.

    Left out or None, an option is at the service's default. The service checks the limits; no value
    of any option compiles a graph.

    Attributes:
        max_new_tokens: Most tokens to generate; at least 1. Default: 64, or what the model's length
            leaves if that is less.
        do_sample: True samples from the distribution, False takes the likeliest token. Default:
            True when `temperature` is given, else what the checkpoint says (usually False).
        temperature: Divides the logits before sampling; above 0 and finite. Default: the
            checkpoint's, usually 1.
        seed: Seed of the randomness, from 0 to 2^63 - 1. Default: chosen by the service and told in
            the result.
        eos_token_ids: Tokens that end the generation; at most 8. Default: the checkpoint's.
    """

    max_new_tokens: int | None
    do_sample: bool | None
    temperature: float | None
    seed: int | None
    eos_token_ids: Sequence[int] | None

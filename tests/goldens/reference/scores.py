"""Log-probabilities of the tokens of prompts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .model import Reference, SourceReference, random_prompt

# Lengths of prompts: the shortest that has a log-probability, and around rungs. One more case has
# as many tokens as leave room for one to generate.
SCORE_LENGTHS = (2, 17, 65)
# Tokens of the source of a model with an encoder, whose decoder's prompt is scored.
SOURCE_LENGTH = 20
TOP_SCORES = 2
DIGITS = 6
# Types of models that count no position for a padding token, also within a prompt. The service
# counts all of them, since its prompts have no padding.
SKIP_PADDING = ("m2m_100",)
# Part of seeds, which no other kind of case uses.
SCORES = 10_003


def score_records(reference: Reference, seed: int) -> Iterator[dict[str, Any]]:
    """Log-probabilities of all tokens but the first of random prompts, and the largest ones.

    The ids of the likeliest tokens are left out: two of them may be too close for float32.
    """
    for index, length in enumerate((*SCORE_LENGTHS, reference.max_length - 1)):
        draw = (seed, SCORES, index)
        if isinstance(reference, SourceReference):
            prompt = random_prompt(reference, (*draw, 1), SOURCE_LENGTH)
            # After the start token.
            scored = _without_padding(reference, random_prompt(reference, draw, length - 1))
            inputs: dict[str, Any] = {"decoder_token_ids": scored}
            logits = reference.exact_logits(prompt, new=scored)
        else:
            prompt = random_prompt(reference, draw, length)
            scored, inputs = prompt[1:], {}
            logits = reference.exact_logits(prompt[:1], new=scored)
        logprobs = logits[:-1].log_softmax(-1)
        own = logprobs.gather(-1, torch.tensor(scored)[:, None])[:, 0]
        yield {
            "name": f"s{length}",
            "prompt_token_ids": prompt,
            **inputs,
            "logprobs": _rounded(own),
            "top": _rounded(logprobs.topk(TOP_SCORES).values),
        }


def _without_padding(reference: Reference, prompt: list[int]) -> list[int]:
    """The prompt with other tokens in place of padding, if the model counts positions without."""
    config = reference.model.config
    if config.model_type not in SKIP_PADDING:
        return prompt
    padding: int = config.pad_token_id
    return [(token + 1) % reference.vocab_size if token == padding else token for token in prompt]


def _rounded(values: torch.Tensor) -> Any:
    listed = values.tolist()
    if values.dim() == 1:
        return [round(value, DIGITS) for value in listed]
    return [[round(value, DIGITS) for value in row] for row in listed]

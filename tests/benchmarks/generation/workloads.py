"""The workloads: prompts and options, drawn from a seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from common.checkpoint import END_TOKEN

SEED = 1
PROMPT_LENGTHS = (16, 128)
NEW_TOKENS = 32
BEAMS = 4
SEQUENCES = 8


class Kind(StrEnum):
    """The kinds of workloads."""

    GREEDY = "greedy"
    BEAMS = "beams"
    EIGHT = "eight"


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One call, the same for every contestant.

    Attributes:
        name: Name in the JSON file.
        label: Label in tables and plots.
        kind: Its kind.
        prompts: Token ids of each; all of one length.
        options: Keyword arguments of `generate`.
    """

    name: str
    label: str
    kind: Kind
    prompts: Sequence[Sequence[int]]
    options: Mapping[str, Any] = field(default_factory=dict)


def workloads() -> list[Workload]:
    """All workloads, in order."""
    rng = np.random.default_rng(SEED)
    prompts = {
        length: rng.integers(END_TOKEN, size=(SEQUENCES, length)).tolist()
        for length in PROMPT_LENGTHS
    }
    return [
        Workload(
            name=f"{kind}-{length}",
            label=f"{label}, prompt {length}",
            kind=kind,
            prompts=prompts[length][:rows],
            options=options,
        )
        for kind, label, rows, options in (
            (Kind.GREEDY, "one sequence", 1, {}),
            (Kind.BEAMS, f"{BEAMS} beams", 1, {"num_beams": BEAMS}),
            (Kind.EIGHT, f"{SEQUENCES} sequences", SEQUENCES, {}),
        )
        for length in PROMPT_LENGTHS
    ]


def option_sets(count: int) -> list[dict[str, Any]]:
    """Draws different option sets that do not change the amount of computation."""
    rng = np.random.default_rng(SEED)
    return [
        {
            "do_sample": True,
            "temperature": round(rng.uniform(0.5, 1.5), 4),
            "top_k": int(rng.integers(10, 1000)),
            "top_p": round(rng.uniform(0.5, 1), 4),
            "repetition_penalty": round(rng.uniform(1, 1.5), 4),
        }
        for _ in range(count)
    ]


def service_option_sets(count: int) -> list[dict[str, Any]]:
    """Draws option sets that include options that Transformers on XLA lacks."""
    rng = np.random.default_rng(SEED)
    return [
        options
        | {
            "seed": int(rng.integers(2**63)),
            "min_p": round(rng.uniform(0, 0.01), 5),
            "typical_p": round(rng.uniform(0.8, 1), 4),
            "no_repeat_ngram_size": int(rng.integers(2, 6)),
            "min_new_tokens": int(rng.integers(1, NEW_TOKENS)),
            # The end token is never drawn, so all requests generate all their tokens.
            "eos_token_ids": [END_TOKEN] * int(rng.integers(1, 9)),
        }
        for options in option_sets(count)
    ]

"""Base of a contestant: a way to generate, and its answers to the conductor.

::

    <- {"versions": {…}}                                                       once it has loaded
    -> {"task": "generate", "prompts": [[5, 6]], "new_tokens": 32, "options": {"num_beams": 4}}
    <- {"seconds": 0.6, "token_ids": [[7, 8, …]]}
    -> {"task": "graphs"}
    <- {"graphs": [{"signature": …, "traces": 1, …}]}

Every environment imports this module, so it needs only the standard library.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from common.protocol import converse


@dataclass(frozen=True, kw_only=True)
class Generated:
    """The result of one call.

    Attributes:
        token_ids: New tokens of each prompt's best sequence.
        device_seconds: Time of compiled graphs within the call, if known.
    """

    token_ids: Sequence[Sequence[int]]
    device_seconds: float | None = None


class Contestant(ABC):
    """A way to generate, loaded and ready."""

    packages: Sequence[str]  # packages whose versions are reported

    @abstractmethod
    def generate(
        self, prompts: Sequence[Sequence[int]], new_tokens: int, options: Mapping[str, Any]
    ) -> Generated:
        """Continues prompts of one length, all at once.

        Args:
            prompts: Token ids of each.
            new_tokens: Number of tokens to generate for each.
            options: Further keyword arguments, named as in Transformers.
        """

    def graphs(self) -> list[dict[str, Any]]:
        """Reports what was traced and compiled since the start: signature, traces, seconds."""
        return []


def serve(loading: AbstractContextManager[Contestant]) -> None:
    """Loads a contestant, and answers questions until standard input ends."""
    converse(loading, _answer_to)


def _answer_to(question: Mapping[str, Any], contestant: Contestant) -> Mapping[str, Any]:
    match question["task"]:
        case "graphs":
            return {"graphs": contestant.graphs()}
        case "generate":
            started = time.perf_counter()
            generated = contestant.generate(
                question["prompts"], question["new_tokens"], question["options"]
            )
            seconds = time.perf_counter() - started
            return {
                "seconds": seconds,
                "device_seconds": generated.device_seconds,
                "token_ids": [list(ids) for ids in generated.token_ids],
            }
        case unknown:
            raise ValueError(f"no task {unknown!r}")

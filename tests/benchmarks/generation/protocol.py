"""A contestant's side of the line protocol: one JSON object a line, a question and its answer.

::

    <- {"versions": {…}}                                                       once it has loaded
    -> {"task": "generate", "prompts": [[5, 6]], "new_tokens": 32, "options": {"num_beams": 4}}
    <- {"seconds": 0.6, "token_ids": [[7, 8, …]]}
    -> {"task": "graphs"}
    <- {"graphs": [{"signature": …, "traces": 1, …}]}

An answer of `{"failed": …}` says why there is no other. Needs the standard library alone: it is
imported in every environment.
"""

import argparse
import importlib.metadata
import json
import os
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def token_text(token: int) -> str:
    """The text of a token in the checkpoint's vocabulary, for libraries that take texts."""
    return f"<{token}>"


@dataclass(frozen=True, kw_only=True)
class Generated:
    """What one call made.

    Attributes:
        token_ids: New tokens of each prompt's best sequence.
        device_seconds: Time of the call that compiled graphs ran, where that is known.
    """

    token_ids: Sequence[Sequence[int]]
    device_seconds: float | None = None


class Contestant(ABC):
    """One way to generate, loaded and ready."""

    packages: Sequence[str]  # whose versions are told

    @abstractmethod
    def generate(
        self, prompts: Sequence[Sequence[int]], new_tokens: int, options: Mapping[str, Any]
    ) -> Generated:
        """Continues prompts of one length, all at once.

        Args:
            prompts: Token ids of each.
            new_tokens: How many to make for each.
            options: More keyword arguments, named as Transformers names them.
        """

    def graphs(self) -> list[dict[str, Any]]:
        """Tells what was traced and compiled since the start: signature, traces, seconds."""
        return []


def arguments(parser: argparse.ArgumentParser | None = None) -> argparse.Namespace:
    """Reads a contestant's command line: the model, the threads, and what `parser` adds."""
    parser = parser or argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True, help="directory of the checkpoint")
    parser.add_argument("--threads", type=int, required=True, help="of one operation")
    return parser.parse_args()


def serve(loading: AbstractContextManager[Contestant]) -> None:
    """Loads a contestant, and answers until the standard input ends."""
    # Libraries print to the standard output: keep it for answers, and give them the log.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(message: Mapping[str, Any]) -> None:
        print(json.dumps(message), file=answers, flush=True)

    with loading as contestant:
        versions = {name: importlib.metadata.version(name) for name in contestant.packages}
        answer({"versions": versions})
        for line in sys.stdin:
            try:
                answer(_answer_to(json.loads(line), contestant))
            # Whatever it is, it belongs into the report.
            except Exception as error:
                traceback.print_exc()
                answer({"failed": f"{type(error).__name__}: {error}"})


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

"""Contestant's side of the line protocol: questions and answers as one JSON object per line.

::

    <- {"versions": {…}, …}                                                    once it has loaded
    -> {"task": …}
    <- {…}

Each benchmark defines its own tasks. The answer `{"failed": …}` gives the reason of a failure.
Every environment imports this module, so it needs only the standard library.
"""

import argparse
import importlib.metadata
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar


def token_text(token: int) -> str:
    """The text of a token in the checkpoint's vocabulary, for libraries that take texts."""
    return f"<{token}>"


class Loaded(Protocol):
    """What every contestant reports about itself.

    Attributes:
        packages: Packages whose versions are reported.
    """

    packages: Sequence[str]


Contestant = TypeVar("Contestant", bound=Loaded)


def arguments(parser: argparse.ArgumentParser | None = None) -> argparse.Namespace:
    """Parses a contestant's command line: the model, the threads, and the options of `parser`."""
    parser = parser or argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True, help="directory of the checkpoint")
    parser.add_argument("--threads", type=int, required=True, help="threads of one operation")
    return parser.parse_args()


def converse(
    loading: AbstractContextManager[Contestant],
    answer: Callable[[Mapping[str, Any], Contestant], Mapping[str, Any]],
    greeting: Callable[[Contestant], Mapping[str, Any]] = lambda _: {},
) -> None:
    """Loads a contestant, and answers questions until standard input ends.

    Args:
        loading: The contestant.
        answer: Answers a question.
        greeting: What to report besides the versions after loading.
    """
    # Libraries print to the standard output: keep it for answers, and give them the log.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def say(message: Mapping[str, Any]) -> None:
        print(json.dumps(message), file=answers, flush=True)

    with loading as contestant:
        versions = {name: importlib.metadata.version(name) for name in contestant.packages}
        say({"versions": versions, **greeting(contestant)})
        for line in sys.stdin:
            try:
                say(answer(json.loads(line), contestant))
            # Any failure belongs in the report.
            except Exception as error:
                traceback.print_exc()
                say({"failed": f"{type(error).__name__}: {error}"})

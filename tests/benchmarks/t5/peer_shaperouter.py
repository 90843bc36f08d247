"""Shaperouter's engine, in the contestant's own process."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from generation.contestant import Contestant, Generated, serve

from common.protocol import arguments
from harness.engine import Bench
from harness.tight import Case

from .checkpoint import PAD_TOKEN

MODEL = "bench"


class ShaperouterEngine(Contestant):
    """Submits requests to the engine."""

    packages = ("tensorflow-cpu",)

    def __init__(self, model: Path) -> None:
        self._bench = Bench({MODEL: model}, slots=1)

    def generate(
        self, prompts: Sequence[Sequence[int]], new_tokens: int, options: Mapping[str, Any]
    ) -> Generated:
        (source,) = prompts
        case = Case(
            prompt_tokens=1,
            new_tokens=new_tokens,
            num_beams=options.get("num_beams", 1),
            source_tokens=len(source),
        )
        # A service compiles them after requests have missed them; this measures what follows.
        self._bench.make_tight(MODEL, [case])
        run = self._bench.submit(
            MODEL, [PAD_TOKEN], source=source, max_new_tokens=new_tokens, **options
        )
        run.wait()
        return Generated(token_ids=[run.token_ids])


@contextmanager
def load() -> Iterator[Contestant]:
    yield ShaperouterEngine(arguments().model)


if __name__ == "__main__":
    serve(load())
    sys.stdout.flush()
    # As in the service: an interpreter may crash if it ends while TensorFlow's threads run.
    os._exit(0)

"""Shaperouter's engine, in the contestant's own process, with a model that has an encoder."""

import argparse
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

MODEL = "bench"


class ShaperouterEngine(Contestant):
    """Submits requests to the engine, one for each source."""

    packages = ("tensorflow-cpu",)

    def __init__(self, model: Path, *, slots: int, dtype: str) -> None:
        self._bench = Bench({MODEL: model}, slots=slots, dtype=dtype)
        start = self._bench.engine.model(MODEL).decoder_start_token_id
        assert start is not None
        self._prompt = [start]

    def generate(
        self, prompts: Sequence[Sequence[int]], new_tokens: int, options: Mapping[str, Any]
    ) -> Generated:
        cases = [
            Case(
                prompt_tokens=1,
                new_tokens=new_tokens,
                num_beams=options.get("num_beams", 1),
                source_tokens=len(source),
            )
            for source in prompts
        ]
        # A service compiles them after requests have missed them; this measures what follows.
        self._bench.make_tight(MODEL, cases, *([case] for case in set(cases)))
        runs = [
            self._bench.submit(
                MODEL, self._prompt, source=source, max_new_tokens=new_tokens, **options
            )
            for source in prompts
        ]
        for run in runs:
            run.wait()
        return Generated(token_ids=[run.token_ids for run in runs])


@contextmanager
def load() -> Iterator[Contestant]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    given = arguments(parser)
    yield ShaperouterEngine(given.model, slots=given.slots, dtype=given.dtype)


if __name__ == "__main__":
    serve(load())
    sys.stdout.flush()
    # As in the service: an interpreter may crash if it ends while TensorFlow's threads run.
    os._exit(0)

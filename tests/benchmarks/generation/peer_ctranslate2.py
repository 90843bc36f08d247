"""CTranslate2, with weights in float32 or int8."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ctranslate2

from common.protocol import arguments, token_text

from .contestant import Contestant, Generated, serve


class CTranslate2(Contestant):
    """A converted model; one worker that spreads each operation over the cores."""

    packages = ("ctranslate2",)

    def __init__(self, model: Path, *, threads: int, compute_type: str) -> None:
        self._generator = ctranslate2.Generator(
            str(model), compute_type=compute_type, inter_threads=1, intra_threads=threads
        )
        # CTranslate2 silently uses another type if the processor lacks this one.
        if not self._generator.compute_type.startswith(compute_type):
            raise ValueError(f"runs in {self._generator.compute_type}, not in {compute_type}")

    def generate(
        self, prompts: Sequence[Sequence[int]], new_tokens: int, options: Mapping[str, Any]
    ) -> Generated:
        results = self._generator.generate_batch(
            [[token_text(token) for token in prompt] for prompt in prompts],
            beam_size=options.get("num_beams", 1),
            max_length=new_tokens,
            include_prompt_in_result=False,
        )
        return Generated(token_ids=[result.sequences_ids[0] for result in results])


@contextmanager
def load() -> Iterator[Contestant]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--compute-type", required=True)
    given = arguments(parser)
    yield CTranslate2(given.model, threads=given.threads, compute_type=given.compute_type)


if __name__ == "__main__":
    serve(load())

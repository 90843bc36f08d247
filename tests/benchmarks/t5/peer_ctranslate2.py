"""CTranslate2, with weights in float32 or int8."""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ctranslate2
from generation.contestant import Contestant, Generated, serve

from common.protocol import arguments, token_text


class CTranslate2(Contestant):
    """A converted model; one worker that spreads each operation over the cores."""

    packages = ("ctranslate2",)

    def __init__(self, model: Path, *, threads: int, compute_type: str) -> None:
        self._translator = ctranslate2.Translator(
            str(model), compute_type=compute_type, inter_threads=1, intra_threads=threads
        )
        # CTranslate2 silently uses another type if the processor lacks this one.
        if not self._translator.compute_type.startswith(compute_type):
            raise ValueError(f"runs in {self._translator.compute_type}, not in {compute_type}")

    def generate(
        self, prompts: Sequence[Sequence[int]], new_tokens: int, options: Mapping[str, Any]
    ) -> Generated:
        results = self._translator.translate_batch(
            [[token_text(token) for token in prompt] for prompt in prompts],
            beam_size=options.get("num_beams", 1),
            max_decoding_length=new_tokens,
        )
        return Generated(token_ids=[word_ids(result.hypotheses[0]) for result in results])


def word_ids(words: Sequence[str]) -> list[int]:
    """The inverse of `token_text`, because a translator returns only words."""
    return [int(re.sub(r"\D", "", word)) for word in words]


@contextmanager
def load() -> Iterator[Contestant]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--compute-type", required=True)
    given = arguments(parser)
    yield CTranslate2(given.model, threads=given.threads, compute_type=given.compute_type)


if __name__ == "__main__":
    serve(load())

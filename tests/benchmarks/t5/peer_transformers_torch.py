"""Transformers on PyTorch, with a model that has an encoder."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from generation.contestant import Contestant, Generated, serve
from transformers import AutoModelForSeq2SeqLM

from common.protocol import arguments


class TransformersTorch(Contestant):
    """`generate` with its defaults."""

    packages = ("transformers", "torch")

    def __init__(self, model: Path) -> None:
        self._model = AutoModelForSeq2SeqLM.from_pretrained(model, dtype=torch.float32).eval()

    def generate(
        self, prompts: Sequence[Sequence[int]], new_tokens: int, options: Mapping[str, Any]
    ) -> Generated:
        sources = torch.tensor(prompts)
        with torch.inference_mode():
            output = self._model.generate(
                sources,
                attention_mask=torch.ones_like(sources),
                max_new_tokens=new_tokens,
                **options,
            )
        # The first token is what the decoder starts with.
        return Generated(token_ids=output[:, 1:].tolist())


@contextmanager
def load() -> Iterator[Contestant]:
    given = arguments()
    torch.set_num_threads(given.threads)
    yield TransformersTorch(given.model)


if __name__ == "__main__":
    serve(load())

"""Transformers on PyTorch."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2LMHeadModel

from common.protocol import arguments

from .contestant import Contestant, Generated, serve


class TransformersTorch(Contestant):
    """`generate` with its defaults: eager, with a dynamic cache and PyTorch's own attention."""

    packages = ("transformers", "torch")

    def __init__(self, model: Path) -> None:
        self._model = GPT2LMHeadModel.from_pretrained(model).eval()

    def generate(
        self, prompts: Sequence[Sequence[int]], new_tokens: int, options: Mapping[str, Any]
    ) -> Generated:
        input_ids = torch.tensor(prompts)
        with torch.inference_mode():
            output = self._model.generate(
                input_ids,
                attention_mask=torch.ones_like(input_ids),
                max_new_tokens=new_tokens,
                **options,
            )
        return Generated(token_ids=output[:, input_ids.shape[1] :].tolist())


@contextmanager
def load() -> Iterator[Contestant]:
    given = arguments()
    torch.set_num_threads(given.threads)
    yield TransformersTorch(given.model)


if __name__ == "__main__":
    serve(load())

"""Transformers on PyTorch."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from common.protocol import arguments

from .contestant import Contestant, Generated, serve


class TransformersTorch(Contestant):
    """`generate` with its defaults: eager, with a dynamic cache and PyTorch's own attention."""

    packages = ("transformers", "torch")

    def __init__(self, model: Path, *, dtype: torch.dtype) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=dtype).eval()

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
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="float32")
    given = arguments(parser)
    torch.set_num_threads(given.threads)
    yield TransformersTorch(given.model, dtype=getattr(torch, given.dtype))


if __name__ == "__main__":
    serve(load())

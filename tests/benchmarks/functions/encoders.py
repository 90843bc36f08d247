"""Code that the runtimes share: the tokenizer, and the model in PyTorch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoModel

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
MAX_TOKENS = 256


def load_tokenizer(model: Path) -> Tokenizer:
    """The model's tokenizer, which cuts as the model asks and pads to the longest text."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.enable_padding()
    return tokenizer


def tokenized(tokenizer: Tokenizer, texts: Sequence[str]) -> dict[str, np.ndarray]:
    """The model's inputs, int64 [n, length]."""
    found = tokenizer.encode_batch(list(texts))
    return {
        "input_ids": np.array([each.ids for each in found], np.int64),
        "attention_mask": np.array([each.attention_mask for each in found], np.int64),
        "token_type_ids": np.array([each.type_ids for each in found], np.int64),
    }


class Hidden(torch.nn.Module):
    """The model with its last hidden states as the only output, for exporters."""

    def __init__(self, model: Path) -> None:
        super().__init__()
        self._model = AutoModel.from_pretrained(model, attn_implementation="eager").eval()

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
        return self._model(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        ).last_hidden_state


def example() -> tuple[torch.Tensor, ...]:
    """Inputs to trace the model with."""
    ids = torch.randint(1000, 2000, (2, 16))
    return ids, torch.ones_like(ids), torch.zeros_like(ids)

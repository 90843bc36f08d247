"""Files written by `torch.save`, in both of its formats, and the tensors in them."""

from __future__ import annotations

import collections
from pathlib import Path

import torch
from safetensors.torch import save_file


def write_pickles(directory: Path) -> None:
    """Writes `archive.bin`, `legacy.bin` and what they hold, `tensors.safetensors`."""
    directory.mkdir(exist_ok=True)
    generator = torch.Generator().manual_seed(0)
    embedding = torch.nn.Parameter(torch.randn(7, 4, generator=generator))
    state = collections.OrderedDict(
        embedding=embedding,
        # The same tensor under another name, like a tied output projection.
        head=embedding,
        turned=torch.randn(3, 5, generator=generator).T,
        # Part of a larger storage.
        row=torch.randn(4, 6, generator=generator)[2],
        scalar=torch.tensor(3.5),
        empty=torch.zeros(0, 3),
        half=torch.randn(5, generator=generator).half(),
        bfloat16=torch.randn(5, generator=generator).bfloat16(),
        double=torch.randn(2, generator=generator, dtype=torch.float64),
        mask=torch.tensor([[True, False]]),
        ids=torch.arange(5),
    )
    torch.save(state, directory / "archive.bin")
    torch.save(state, directory / "legacy.bin", _use_new_zipfile_serialization=False)
    wide = {
        name: (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).detach()
        for name, tensor in state.items()
    }
    save_file(
        {name: tensor.clone().contiguous() for name, tensor in wide.items()},
        directory / "tensors.safetensors",
        metadata={"torch": torch.__version__},
    )

"""Writes Qwen3 or GPT-2 as GGUF in Q4_0: python -m families.gguf_rounding DIRECTORY FILE.

llama.cpp itself rounds the weights, as its program `llama-quantize` does for the files that people
use: the matrix of the vocabulary gets six bits (Q6_K), or eight if its width is no multiple of 256.
"""

import argparse
import tempfile
from pathlib import Path

import llama_cpp

from .gguf_checkpoint import write


def write_rounded(directory: Path, path: Path) -> None:
    """Writes the file.

    Raises:
        ValueError: llama.cpp cannot round the weights; its log says why.
    """
    settings = llama_cpp.llama_model_quantize_default_params()
    settings.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="unfinished-") as scratch:
        exact = Path(scratch) / "F32.gguf"
        write(directory, exact, "F32")
        if llama_cpp.llama_model_quantize(str(exact).encode(), str(path).encode(), settings):
            raise ValueError(f"llama.cpp cannot round the weights of {directory}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("path", type=Path)
    given = parser.parse_args()
    write_rounded(given.directory, given.path)

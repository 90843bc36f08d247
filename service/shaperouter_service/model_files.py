"""Model directories are untrusted input: what is in one is looked at before anything reads it.

Weights are read from safetensors files alone, which hold numbers and no code, and whose headers are
checked against the file before memory is asked for. Tokenizers are loaded without code from the
directory. Here is what is left: links that lead elsewhere, files that are none, and sizes.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from shaperouter_service.errors import StartupError

# Most bytes of files that are read as a whole: the first of what configures a model, the other of
# tokenizers and of lists of tensors. Large ones have 4 kB and 40 MB.
MAX_CONFIG_BYTES = 2**20
MAX_TEXT_BYTES = 2**27

_CONFIG = "config.json"  # and generation_config.json, tokenizer_config.json, …
# What tokenizers are read from, and lists of shards.
_WHOLE = (".json", ".jinja", ".model", ".tiktoken", ".txt")


def check_model_directory(directory: Path) -> None:
    """Looks at all that is in a model's directory.

    Raises:
        StartupError: A link leads out of it, something is neither a file nor a directory, or a file
            that has to be read as a whole is too large.
    """
    root = _root(directory)
    for path in _entries(directory):
        real = path.resolve()
        if not real.is_relative_to(root):
            raise StartupError(f"{path}: leads out of the model's directory, to {real}")
        try:
            status = path.stat()
        except OSError:
            continue  # leads nowhere: whoever needs it will say so
        if stat.S_ISDIR(status.st_mode):
            continue
        if not stat.S_ISREG(status.st_mode):
            raise StartupError(f"{path}: is neither a file nor a directory")
        limit = _most_bytes(path.name)
        if limit is not None and status.st_size > limit:
            raise StartupError(f"{path}: must have at most {limit} bytes, got {status.st_size}")


def _root(directory: Path) -> Path:
    """Where links may lead: the hub's cache has `snapshots/REVISION` with links into `blobs`."""
    real = directory.resolve()
    return real.parents[1] if real.parent.name == "snapshots" else real


def _entries(directory: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(directory):
        for name in (*folders, *files):
            yield Path(folder, name)


def _most_bytes(name: str) -> int | None:
    if name.endswith(_CONFIG):
        return MAX_CONFIG_BYTES
    return MAX_TEXT_BYTES if name.endswith(_WHOLE) else None

"""Prefetching the weights of models while a worker imports TensorFlow.

Loading then finds the files in the page cache, and memory for the weights that is populated. This
module does not import TensorFlow.
"""

import contextlib
import math
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open

from shaperouter_service.checkpoints.model_files import safetensors_files
from shaperouter_service.checkpoints.number_types import NUMBER_BYTES, DType
from shaperouter_service.errors import StartupError
from shaperouter_service.system.devices import available_memory
from shaperouter_service.system.populated_memory import PopulatedMemory

# Share of the available memory that prefetched weights may take. Whether models fit is checked when
# they are loaded.
_SHARE = 0.5


class _Prefetched(NamedTuple):
    """The weights of a model: their files, and memory for them."""

    files: list[Path]
    memory: PopulatedMemory


def prefetch_weights(directories: Mapping[str, Path], dtype: DType) -> dict[str, PopulatedMemory]:
    """Starts to prefetch weights that will be packed, in a thread.

    Args:
        directories: The directory of each model, by name.
        dtype: Type that matrices will be stored in.

    Returns:
        The memory for the weights of each model that has any; about as much as they need. Models
        that would take too much memory, or whose files are unusable, are left out.
    """
    left = available_memory() * _SHARE
    prefetched: dict[str, _Prefetched] = {}
    for name, directory in directories.items():
        try:
            files = safetensors_files(directory)
            size = math.ceil(_count_numbers(files) * NUMBER_BYTES[dtype])
            if 0 < size <= left:
                prefetched[name] = _Prefetched(files, PopulatedMemory(size))
                left -= size
        except (StartupError, SafetensorError, OSError):
            continue  # loading it reports what is wrong, or finds memory that is left by then
    threading.Thread(
        target=_prefetch, args=[prefetched.values()], name="prefetch", daemon=True
    ).start()
    return {name: each.memory for name, each in prefetched.items()}


def _count_numbers(files: Iterable[Path]) -> int:
    count = 0
    for path in files:
        with safe_open(path, framework="numpy") as tensors:
            names = tensors.keys()
            count += sum(math.prod(tensors.get_slice(key).get_shape()) for key in names)
    return count


def _prefetch(prefetched: Iterable[_Prefetched]) -> None:
    for files, memory in prefetched:
        for path in files:
            _read_ahead(path)
        memory.populate()


def _read_ahead(path: Path) -> None:
    """Asks the system to read a file from the disk into the page cache."""
    with contextlib.suppress(OSError), path.open("rb") as file:  # loading it reports what is wrong
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)

"""Prefetching the weights of models while a worker imports TensorFlow.

When the weights are loaded, their files are in the page cache, and their memory is populated. This
module does not import TensorFlow.
"""

import contextlib
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from safetensors import SafetensorError, safe_open

from shaperouter_service.checkpoints.functions import is_function
from shaperouter_service.checkpoints.model_files import safetensors_files
from shaperouter_service.checkpoints.number_types import NUMBER_BYTES, DType
from shaperouter_service.errors import StartupError
from shaperouter_service.system.available_memory import available_memory
from shaperouter_service.system.populated_memory import PopulatedMemory

T = TypeVar("T")

# Share of the available memory that prefetched weights of all models may take. Whether models fit
# is checked when they are loaded.
_SHARE = 0.5
# Bytes to read ahead in one call. Linux cuts longer requests to the window of the disk, which is
# usually this.
_READ_AHEAD = 2**17


def prefetch_weights(directories: Mapping[str, Path], dtype: DType) -> dict[str, PopulatedMemory]:
    """Starts to prefetch weights that will be packed, in threads.

    Args:
        directories: The directory of each model, by name.
        dtype: Type that matrices will be stored in.

    Returns:
        The memory for the weights of each model, by name. Models that need more than is left, that
        have no weights to pack, or whose files are unusable are left out.
    """
    left = available_memory() * _SHARE
    files: list[Path] = []
    memories: dict[str, PopulatedMemory] = {}
    for name, directory in directories.items():
        # What is wrong with a model is reported when it is loaded.
        with contextlib.suppress(StartupError, SafetensorError, OSError):
            if is_function(directory):
                continue
            of_model = safetensors_files(directory)
            size = math.ceil(_count_numbers(of_model) * NUMBER_BYTES[dtype])
            if 0 < size <= left:
                memories[name] = PopulatedMemory(size)
                files += of_model
                left -= size
    # Disks and memory need not wait for each other.
    _start(_read_ahead, files)
    _start(_populate, list(memories.values()))
    return memories


def _count_numbers(files: Iterable[Path]) -> int:
    count = 0
    for path in files:
        with safe_open(path, framework="numpy") as tensors:
            names = tensors.keys()
            count += sum(math.prod(tensors.get_slice(name).get_shape()) for name in names)
    return count


def _start(work: Callable[[list[T]], None], items: list[T]) -> None:
    # Without a free thread, loading does all of it.
    with contextlib.suppress(RuntimeError):
        threading.Thread(target=work, args=[items], name="prefetch", daemon=True).start()


def _populate(memories: list[PopulatedMemory]) -> None:
    for memory in memories:
        memory.populate()


def _read_ahead(files: list[Path]) -> None:
    """Asks the system to read files from the disk into the page cache."""
    for path in files:
        with contextlib.suppress(OSError), path.open("rb") as file:
            for start in range(0, os.fstat(file.fileno()).st_size, _READ_AHEAD):
                os.posix_fadvise(file.fileno(), start, _READ_AHEAD, os.POSIX_FADV_WILLNEED)

"""Reads mutated checkpoints in a separate process, to detect crashes and bound memory.

Run as `python -m harness.hostile_checkpoints SEED COUNT`; prints the outcomes as JSON.
"""

from __future__ import annotations

import collections
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import ml_dtypes  # noqa: F401 (NumPy knows bfloat16 by it)
import numpy as np

from harness.mutation import mutate_file
from shaperouter_service.checkpoints.model_files import check_model_directory
from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.errors import StartupError
from shaperouter_service.models.defaults import read_decoder_start, read_default_options
from shaperouter_service.models.loading import read_family
from shaperouter_service.routing.ladders import PREFILL_PIECE, Ladders

GOLDENS = Path(__file__).parents[1] / "goldens"
CHECKPOINTS = (
    "gpt2-odd-heads",
    "gpt2-bare",
    "opt-post",
    "gemma3",
    "phi3",
    "t5-gated",
    "t5-tied",
    "bart",
    "marian",
)
FILES = ("config.json", "generation_config.json", "model.safetensors")

# Address space that reading may add; the checkpoints have half a megabyte.
ROOM = 2**29


def read(directory: Path) -> None:
    """Reads a whole checkpoint like the loading of a model, without the device.

    Raises:
        StartupError: It cannot be used.
    """
    check_model_directory(directory)
    checkpoint = Checkpoint(directory)
    family = read_family(checkpoint)
    read_default_options(checkpoint, family)
    read_decoder_start(checkpoint, family)
    for _ in family.read_weights(checkpoint, np.dtype(np.float32)):
        pass
    try:
        Ladders.default(
            max_length=family.max_length,
            slots=8,
            prefill_piece=PREFILL_PIECE,
            max_source_length=family.max_source_length,
        )
    except ValueError as error:
        raise StartupError(str(error)) from error


def outcome(action: Callable[[], None]) -> str:
    """The outcome: read, refused, or the location of a defect."""
    try:
        action()
    except StartupError:
        return "refused"
    except Exception:
        return traceback.format_exc(limit=-4)
    return "read"


def peak() -> int:
    """Peak memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(seed: int, count: int) -> None:
    """Reads this many mutated checkpoints."""
    source = random.Random(seed)
    outcomes: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as name:
        for checkpoint in CHECKPOINTS:
            read(GOLDENS / checkpoint)
        address_space = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf(
            "SC_PAGESIZE"
        )
        resource.setrlimit(resource.RLIMIT_AS, (address_space + ROOM, address_space + ROOM))
        before = peak()
        for _ in range(count):
            directory = Path(name) / "checkpoint"
            shutil.copytree(GOLDENS / source.choice(CHECKPOINTS), directory)
            mutate_file(directory / source.choice(FILES), source)
            outcomes[outcome(lambda: read(directory))] += 1  # noqa: B023 (called at once)
            shutil.rmtree(directory)
        print(json.dumps({"outcomes": outcomes, "grown": peak() - before}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

"""Reads mutated checkpoints, in a process of its own: a crash is to be seen, and memory bounded.

Run as `python -m harness.hostile_checkpoints SEED COUNT`; prints what became of them as JSON.
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
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import ml_dtypes  # noqa: F401 (NumPy knows bfloat16 by it)
import numpy as np

from harness.mutation import mutated
from shaperouter_service.errors import StartupError
from shaperouter_service.model_files import check_model_directory
from shaperouter_service.models.checkpoint import Checkpoint
from shaperouter_service.models.config import Config
from shaperouter_service.models.defaults import read_decoder_start, read_default_options
from shaperouter_service.models.loading import FAMILIES
from shaperouter_service.routing.ladders import PREFILL_PIECE, Ladders

GOLDENS = Path(__file__).parents[1] / "goldens"
CHECKPOINTS = ("gpt2-odd-heads", "gpt2-bare", "opt-post", "t5-gated", "t5-tied")
FILES = ("config.json", "generation_config.json", "model.safetensors")

# Address space beyond what the process has when it begins: the checkpoints have half a megabyte.
ROOM = 2**29

_HOSTILE: list[Any] = [
    -1, 0, 1, 3, 2**31, 2**63, 10**30, 1e308, -1e308, 0.5, True, None, "", "x" * 1000, "../../etc",
    [], {}, [[]], [1] * 1000, {"a": 1}, [-1], [2**40], ["x"],
]  # fmt: skip


def mutate_json(content: Any, source: random.Random) -> Any:
    """Replaces, drops and adds values anywhere in what JSON holds."""
    if isinstance(content, dict) and content and source.random() < 0.9:
        key = source.choice(list(content))
        changed = dict(content)
        match source.randrange(8):
            case 0:
                del changed[key]
            case 1:
                changed[source.choice(_KEYS)] = source.choice(_HOSTILE)
            case _:
                changed[key] = mutate_json(content[key], source)
        return changed
    if isinstance(content, list) and content and source.random() < 0.7:
        at = source.randrange(len(content))
        return [*content[:at], mutate_json(content[at], source), *content[at + 1 :]]
    return source.choice(_HOSTILE)


_KEYS = (
    "n_embd", "n_layer", "n_head", "n_positions", "vocab_size", "d_model", "d_kv", "num_layers",
    "num_heads", "relative_attention_num_buckets", "relative_attention_max_distance",
    "hidden_size", "ffn_dim", "word_embed_proj_dim", "max_position_embeddings", "eos_token_id",
    "bad_words_ids", "sequence_bias", "suppress_tokens", "num_beams", "max_new_tokens",
    "data_offsets", "shape", "dtype", "__metadata__", "weight_map", "auto_map",
)  # fmt: skip


def mutate(path: Path, source: random.Random) -> None:
    """Mutates one file: as JSON that says something else, or as bytes that are none."""
    data = path.read_bytes()
    if source.random() < 0.3:
        path.write_bytes(mutated(data[:4000], source) + data[4000:])
    elif path.suffix == ".json":
        path.write_text(json.dumps(mutate_json(json.loads(data), source)))
    else:
        # A safetensors file: the header's length in 8 bytes, the header in JSON, the numbers.
        end = 8 + int.from_bytes(data[:8], "little")
        header = json.dumps(mutate_json(json.loads(data[8:end]), source)).encode()
        length = len(header) if source.random() < 0.9 else source.choice((0, 2**62, len(data)))
        rest = data[end:] if source.random() < 0.8 else data[end : end + source.randrange(1000)]
        path.write_bytes(length.to_bytes(8, "little") + header + rest)


def read(directory: Path) -> None:
    """Reads all of a checkpoint, as loading it does, but for the device.

    Raises:
        StartupError: It cannot be used.
    """
    check_model_directory(directory)
    checkpoint = Checkpoint(directory)
    config = Config(directory / "config.json", checkpoint.config)
    model_type = str(checkpoint.config.get("model_type"))
    if model_type not in FAMILIES:
        raise config.error("model_type")
    family = FAMILIES[model_type].from_config(config)
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
    """How it ended: read, refused, or where our defect is."""
    try:
        action()
    except StartupError:
        return "refused"
    except Exception:
        return traceback.format_exc(limit=-4)
    return "read"


def peak() -> int:
    """Most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(seed: int, count: int) -> None:
    """Reads that many."""
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
            mutate(directory / source.choice(FILES), source)
            outcomes[outcome(lambda: read(directory))] += 1  # noqa: B023 (called at once)
            shutil.rmtree(directory)
        print(json.dumps({"outcomes": outcomes, "grown": peak() - before}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

"""Files of model directories: checks of this untrusted input, and reading JSON.

Weights are read only from safetensors files, which contain numbers and no code, and whose headers
are checked against the file before memory is allocated. Tokenizers are loaded without running code
from the directory. `check_model_directory` checks the rest before anything reads a file: links that
lead elsewhere, entries that are not files, and sizes.
"""

import json
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shaperouter_service.errors import StartupError

# Maximum bytes of files that are read as a whole: first for a model's configuration, then for
# tokenizers, with their settings, and lists of tensors. Large ones have 4 kB and 40 MB.
MAX_CONFIG_BYTES = 2**20
MAX_TEXT_BYTES = 2**27

# Endings of the files of a checkpoint that are read as a whole: configurations, chat templates,
# lists of shards and all that Transformers builds tokenizers from, such as Marian's `source.spm`
# and PhoBERT's `bpe.codes`. They are downloaded, checked, converted and part of digests.
WHOLE_SUFFIXES = (".codes", ".jinja", ".json", ".model", ".spm", ".tiktoken", ".txt")
WEIGHTS_SUFFIX = ".safetensors"

_CONFIG = "config.json"  # and generation_config.json, …
# It may list thousands of added tokens: Gemma 3's has 1.2 MB.
_TOKENIZER_CONFIG = "tokenizer_config.json"
# Families of models that transcribe recordings, by the `model_type` of their config.json.
_TRANSCRIBERS = frozenset({"whisper"})
# Families without an encoder.
_DECODERS = frozenset(
    {
        "gemma2",
        "gemma3",
        "gemma3_text",
        "gpt2",
        "llama",
        "ministral",
        "mistral",
        "opt",
        "phi3",
        "qwen2",
        "qwen3",
        "smollm3",
    }
)


def check_model_directory(directory: Path) -> None:
    """Checks everything in a model's directory.

    Raises:
        StartupError: A link leads out of it, an entry is neither a file nor a directory, a file
            cannot be read, or one that is read as a whole is too large.
    """
    roots = _roots(directory)
    for path in _entries(directory):
        # Not Path.resolve, which raises an error for links in a loop.
        real = Path(os.path.realpath(path))
        if not any(real.is_relative_to(root) for root in roots):
            raise StartupError(f"{path}: points outside the model's directory, to {real}")
        is_read = path.name.endswith((*WHOLE_SUFFIXES, WEIGHTS_SUFFIX))
        try:
            status = path.stat()
        except OSError as error:
            # A broken link is not a missing file, which a model may do without.
            if is_read:
                raise StartupError(f"{path}: cannot be read: {error.strerror}") from error
            continue
        if stat.S_ISDIR(status.st_mode):
            if is_read:
                raise StartupError(f"{path}: must be a file, is a directory")
            continue
        if not stat.S_ISREG(status.st_mode):
            raise StartupError(f"{path}: is neither a file nor a directory")
        limit = _max_bytes(path.name)
        if limit is not None and status.st_size > limit:
            raise StartupError(f"{path}: must have at most {limit} bytes, got {status.st_size}")


def is_checkpoint(directory: Path) -> bool:
    """Whether a model is a Hugging Face checkpoint; others are functions."""
    return (directory / _CONFIG).exists()


def may_transcribe(directory: Path) -> bool:
    """Whether a model may transcribe recordings, judged by its directory without loading it.

    Raises:
        StartupError: Its config.json cannot be read.
    """
    path = directory / _CONFIG
    return not path.exists() or _model_type(path) in _TRANSCRIBERS


def is_decoder(directory: Path) -> bool:
    """Whether a model generates without an encoder, judged by its directory without loading it.

    Raises:
        StartupError: Its config.json cannot be read.
    """
    path = directory / _CONFIG
    return path.exists() and _model_type(path) in _DECODERS


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        StartupError: The file is missing, is not JSON, or contains no object.
    """
    content = _json(path)
    if not isinstance(content, dict):
        raise StartupError(f"{path}: must hold a JSON object, got {type(content).__name__}")
    return content


def read_json_list(path: Path) -> list[Any]:
    """Reads a JSON array.

    Raises:
        StartupError: The file is missing, is not JSON, or contains no array.
    """
    content = _json(path)
    if not isinstance(content, list):
        raise StartupError(f"{path}: must hold a JSON array, got {type(content).__name__}")
    return content


def safetensors_files(directory: Path) -> list[Path]:
    """The files with a checkpoint's weights; see `weight_files`."""
    return weight_files(directory, "model.safetensors", "model.safetensors.index.json")


def weight_files(directory: Path, whole: str, index: str) -> list[Path]:
    """The files with a checkpoint's weights: one, or the shards that an index names.

    Args:
        directory: Directory of the checkpoint.
        whole: Name of a single file.
        index: Name of the index of shards.

    Raises:
        StartupError: There is neither, the index is damaged, or a shard is missing.
    """
    if (directory / whole).exists():
        return [directory / whole]
    if not (directory / index).exists():
        raise StartupError(
            f"{directory}: has neither {whole} nor {index}; `shaperouterd convert` converts "
            "pytorch_model.bin, and Whisper in CTranslate2's layout"
        )
    weight_map = read_json(directory / index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise StartupError(f"{directory / index}: has no weight_map")
    shards = sorted({str(shard) for shard in weight_map.values()})
    # Path.exists raises an error for a name that is too long.
    present = {path.name for path in directory.iterdir()}
    for shard in shards:
        # A checkpoint is untrusted input, so a shard must be beside its index.
        if Path(shard).name != shard:
            raise StartupError(f"{directory / index}: shard {shard!r} is outside the directory")
        if shard not in present:
            raise StartupError(f"{directory / index}: shard {shard!r} is missing")
    return [directory / shard for shard in shards]


def _model_type(path: Path) -> str:
    """The family that a config.json names; anything but a name is refused when it is loaded."""
    return str(read_json(path).get("model_type"))


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartupError(f"{path}: cannot be read: {error.strerror}") from error
    # Python raises the second error for thousands of nested brackets.
    except (ValueError, RecursionError) as error:
        raise StartupError(f"{path}: is not valid JSON: {error}") from error


def _roots(directory: Path) -> Sequence[Path]:
    """Where links may lead: the hub's cache has `snapshots/REVISION` with links into `blobs`."""
    real = directory.resolve()
    return [real, real.parents[1] / "blobs"] if real.parent.name == "snapshots" else [real]


def _entries(directory: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(directory):
        for name in (*folders, *files):
            yield Path(folder, name)


def _max_bytes(name: str) -> int | None:
    if name.endswith(_CONFIG) and name != _TOKENIZER_CONFIG:
        return MAX_CONFIG_BYTES
    return MAX_TEXT_BYTES if name.endswith(WHOLE_SUFFIXES) else None

"""Conversion of a model's directory to the Hugging Face layout."""

import json
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from shaperouter_service.checkpoints.conversion import whisper
from shaperouter_service.checkpoints.conversion.ctranslate2 import read_weights
from shaperouter_service.checkpoints.conversion.pytorch import Layout, StateDict, read_state_dict
from shaperouter_service.checkpoints.conversion.special_tokens import SpecialTokens
from shaperouter_service.checkpoints.model_files import (
    WEIGHTS_SUFFIX,
    WHOLE_SUFFIXES,
    check_model_directory,
    read_json,
    safetensors_files,
    weight_files,
)
from shaperouter_service.checkpoints.sentence_transformers import MODULES, read_modules
from shaperouter_service.errors import StartupError

CONFIG = "config.json"
CTRANSLATE2 = "model.bin"
PYTORCH = "pytorch_model.bin"
PYTORCH_INDEX = "pytorch_model.bin.index.json"
TOKENIZER = "tokenizer.json"


def convert_directory(source: Path, target: Path) -> None:
    """Converts a directory of another layout to the Hugging Face layout.

    Weights keep their types, except that bfloat16 and the integers of CTranslate2 become float32.
    The target appears complete or not at all.

    Args:
        source: Directory with config.json and pytorch_model.bin (one file or shards), or with
            model.bin of a CTranslate2 Whisper, config.json and tokenizer.json. The first may have
            modules of sentence-transformers, and its only pytorch_model.bin in one of them.
        target: Directory to create; it must be empty if it exists.

    Raises:
        StartupError: A file is missing, damaged or of another model, or the target is not empty.
        OSError: The target cannot be written.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StartupError(f"{target}: must be an empty directory or not exist")
    check_model_directory(source)
    if any(_has_pytorch(folder) for folder in (source, *_module_folders(source))):
        convert = _convert_pytorch
    elif (source / CTRANSLATE2).exists():
        convert = _convert_ctranslate2
    else:
        raise StartupError(
            f"{source}: has no weights to convert: expected {PYTORCH}, {PYTORCH_INDEX}, or "
            f"{CTRANSLATE2} of CTranslate2"
        )
    with _complete_or_absent(target) as output:
        convert(source, output)


def _has_pytorch(folder: Path) -> bool:
    return (folder / PYTORCH).exists() or (folder / PYTORCH_INDEX).exists()


def _module_folders(source: Path) -> Collection[Path]:
    """The folders of sentence-transformers' modules; `read_modules` keeps them in the directory."""
    if not (source / MODULES).exists():
        return ()
    folders = dict.fromkeys(module.directory for module in read_modules(source))
    return [folder for folder in folders if folder != source and folder.is_dir()]


def _convert_pytorch(source: Path, output: Path) -> None:
    ties = read_json(source / CONFIG).get("tie_word_embeddings") is not False
    if not _has_pytorch(source):
        # Refuses an encoder without weights, which only its modules have.
        safetensors_files(source)
    _convert_folder(source, output, skip_copies=ties)
    for folder in _module_folders(source):
        _convert_folder(folder, output / folder.relative_to(source), skip_copies=False)


def _convert_folder(source: Path, output: Path, *, skip_copies: bool) -> None:
    """Converts the weights in a folder, unless they are safetensors, and copies its other files."""
    output.mkdir(parents=True, exist_ok=True)
    copied: tuple[str, ...] = (*WHOLE_SUFFIXES, WEIGHTS_SUFFIX)
    if _has_pytorch(source):
        _save_tensors(output, _pytorch_tensors(source, skip_copies=skip_copies))
        copied = WHOLE_SUFFIXES
    for path in source.iterdir():
        if path.name.endswith(copied) and path.name != PYTORCH_INDEX:
            shutil.copyfile(path, output / path.name)


def _pytorch_tensors(source: Path, *, skip_copies: bool) -> dict[str, np.ndarray]:
    """The tensors of all shards.

    Args:
        source: Directory of the checkpoint.
        skip_copies: Skip a tensor that a file also has under an earlier name, such as an output
            projection that is the embedding.
    """
    tensors: dict[str, np.ndarray] = {}
    for path in weight_files(source, PYTORCH, PYTORCH_INDEX):
        state = read_state_dict(path)
        for name, layout in _distinct(state) if skip_copies else state.layouts.items():
            tensors[name] = state.tensor(layout)
    return tensors


def _distinct(state: StateDict) -> Iterator[tuple[str, Layout]]:
    seen: set[Layout] = set()
    for name, layout in state.layouts.items():
        if layout not in seen:
            seen.add(layout)
            yield name, layout


def _convert_ctranslate2(source: Path, output: Path) -> None:
    if not (source / TOKENIZER).is_file():
        raise StartupError(
            f"{source}: has no {TOKENIZER}; copy it from the checkpoint that was converted to "
            "CTranslate2"
        )
    weights = read_weights(source / CTRANSLATE2)
    whisper.check_layout(weights)
    special = SpecialTokens.read(source / TOKENIZER)
    contents: Mapping[str, Mapping[str, Any]] = {
        CONFIG: whisper.config(weights, special),
        "generation_config.json": whisper.generation_config(
            weights, special, read_json(source / CONFIG)
        ),
        "preprocessor_config.json": whisper.preprocessor_config(weights),
        "tokenizer_config.json": whisper.tokenizer_config(special),
    }
    for name, content in contents.items():
        (output / name).write_text(
            json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8"
        )
    shutil.copyfile(source / TOKENIZER, output / TOKENIZER)
    _save_tensors(output, dict(whisper.tensors(weights)))


def _save_tensors(output: Path, tensors: dict[str, np.ndarray]) -> None:
    file = output / "model.safetensors"
    save_file(tensors, file, metadata={"format": "pt"})
    # safetensors makes the file readable only for its owner.
    file.chmod(output.stat().st_mode & 0o666)


@contextmanager
def _complete_or_absent(target: Path) -> Iterator[Path]:
    """Yields a new directory beside the target, which becomes the target unless an error occurs."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as folder:
        output = Path(folder) / "output"
        output.mkdir()
        yield output
        output.rename(target)

"""The models of campaigns, tiny but for the demo; made once, and kept."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, pre_tokenizers

import shaperouter_service
from harness.changing_models import make_revision
from harness.service import GOLDENS
from harness.whispers import NAME, add_tokenizer, with_tokenizer

# Directory of the revisions that are loaded while the service runs, and their names.
REPOSITORY = "repository"
REVISIONS = ("first", "second", "third")

_TESTS = Path(__file__).parents[1]
_DEMO = Path(shaperouter_service.__file__).parent / "builtin" / "demo"
_TEMPLATE = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
# Checkpoints of the tests: whether texts have to become tokens.
_COPIED = {
    "endless": ("gpt2-untied", False),
    "labels": ("roberta-labels", False),
    "translating": ("t5-tied", False),
    "embedding": ("bert-embedder", True),
    "ranking": ("bert-reranker", True),
}
_SAVED = {"scores": "harness.save_function", "looping": "chaos.poison"}


def made(directory: Path) -> Sequence[Path]:
    """The models, each in a directory of its name; makes them if an earlier campaign has not."""
    if not directory.exists():
        new = directory.with_name(f"{directory.name}-new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        _make(new)
        new.rename(directory)
    return sorted(path for path in directory.iterdir() if path.name != REPOSITORY)


def _make(directory: Path) -> None:
    variables = os.environ | {"PYTHONPATH": str(_TESTS), "TF_CPP_MIN_LOG_LEVEL": "3"}
    saving = [
        subprocess.Popen([sys.executable, "-m", module, directory / name], env=variables)
        for name, module in _SAVED.items()
    ]
    for name, (checkpoint, reads_text) in _COPIED.items():
        shutil.copytree(GOLDENS / checkpoint, directory / name)
        if reads_text:
            _add_words(directory / name)
    with_tokenizer(directory)
    (directory / NAME).rename(directory / "hearing")
    shutil.copytree(_DEMO, directory / "demo")
    settings = directory / "demo" / "tokenizer_config.json"
    template = {"chat_template": _TEMPLATE}
    settings.write_text(json.dumps(json.loads(settings.read_text()) | template))
    for seed, name in enumerate(REVISIONS):
        make_revision(GOLDENS / "gpt2-untied", directory / REPOSITORY / name, seed=seed)
    for process in saving:
        if process.wait():
            raise RuntimeError(f"{process.args} failed")


def _add_words(checkpoint: Path) -> None:
    """Adds a tokenizer that divides texts at their spaces."""
    add_tokenizer(checkpoint)
    path = str(checkpoint / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_next")
    tokenizer.save(path)

"""Mutated tokenizers are loaded or refused, and the loaded ones work."""

import os
import random
import shutil
from pathlib import Path

import pytest

import shaperouter_service
from harness.mutation import mutate_file
from shaperouter_service.errors import StartupError
from shaperouter_service.text import load_tokenizer

COUNT = int(os.environ.get("FUZZ_FILES", "40")) // 2

DEMO = Path(shaperouter_service.__file__).parent / "builtin" / "demo"


@pytest.mark.timeout(1200)
def test_mutated_tokenizers_are_loaded_or_refused(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    source = random.Random(seed)
    # Three quarters of the mutations are refused, so it can happen that all of these are.
    assert load_tokenizer(DEMO) is not None
    refused = 0
    for number in range(COUNT):
        directory = tmp_path / str(number)
        directory.mkdir()
        for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
            shutil.copy(DEMO / name, directory)
        mutate_file(directory / source.choice(["tokenizer.json", "tokenizer_config.json"]), source)
        try:
            tokenizer = load_tokenizer(directory)
        except StartupError:
            refused += 1
        else:
            assert tokenizer is not None
            tokenizer.decode(tokenizer.encode("TensorFlow is"))
        shutil.rmtree(directory)
    assert refused

"""A config.json may call dimensions by the common names that Transformers accepts."""

from pathlib import Path
from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from harness.encoders import ENCODERS as TEXT_ENCODERS
from harness.engine import CHECKPOINTS, GOLDENS
from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.errors import StartupError
from shaperouter_service.models.encoders.loading import ENCODERS, read_encoder
from shaperouter_service.models.loading import FAMILIES, read_family

KINDS = {**FAMILIES, **ENCODERS}
DIRECTORIES = {**CHECKPOINTS, **{name: GOLDENS / name for name in TEXT_ENCODERS}}


def read(directory: Path, **changes: Any) -> Any:
    """Reads the dimensions of a checkpoint with changes of its config.json."""
    checkpoint = Checkpoint(directory, only_headers=True)
    checkpoint.config = checkpoint.config | changes
    if checkpoint.config["model_type"] in ENCODERS:
        return read_encoder(checkpoint)[0]
    return read_family(checkpoint)


@pytest.mark.parametrize("name", KINDS)
def test_other_names_are_those_of_transformers(name: str) -> None:
    names = {
        other: own
        for other, own in CONFIG_MAPPING[name].attribute_map.items()
        # Of images, which no family reads.
        if not own.endswith("token_index")
    }
    assert KINDS[name].other_names == names


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_value_under_another_name_is_read(name: str) -> None:
    directory = DIRECTORIES[name]
    config = Checkpoint(directory, only_headers=True).config
    expected = read(directory)
    for other, own in KINDS[config["model_type"]].other_names.items():
        for missing in ({own: None, other: config[own]}, {other: None}):
            assert read(directory, **missing) == expected


def test_a_family_computes_with_the_number_of_heads_under_the_other_name() -> None:
    model = read(GOLDENS / "gpt2-odd-heads", n_head=None, num_attention_heads=1)
    assert model.heads == 1


@pytest.mark.parametrize(
    ("name", "own", "other"),
    [
        ("gpt2-odd-heads", "n_head", "num_attention_heads"),
        ("t5-tied", "num_heads", "num_attention_heads"),
        ("bart", "encoder_attention_heads", "num_attention_heads"),
        ("whisper-uneven", "encoder_attention_heads", "num_key_value_heads"),
        ("distilbert-embedder", "n_heads", "num_attention_heads"),
    ],
)
def test_numbers_of_heads_that_differ_are_refused(name: str, own: str, other: str) -> None:
    with pytest.raises(StartupError, match=rf"config\.json: {own} and {other} must be equal, got"):
        read(GOLDENS / name, **{other: 1000})


def test_an_outdated_number_of_layers_under_the_other_name_does_not_count() -> None:
    assert read(GOLDENS / "bart", num_hidden_layers=1000) == read(GOLDENS / "bart")

"""A tiny Whisper with a tokenizer, so that its transcripts have text, and files of sounds."""

from __future__ import annotations

import io
import json
import shutil
import wave
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models

from harness.service import GOLDENS

NAME = "whisper-uneven"
# Ids below it are text.
TEXT_TOKENS = 90
RATE = 16_000
# Length of a window of this model.
WINDOW_SAMPLES = 60 * 160


def with_tokenizer(directory: Path) -> Path:
    """Copies the checkpoint to a directory, with a tokenizer whose words are numbers."""
    target = directory / NAME
    shutil.copytree(GOLDENS / NAME, target)
    add_tokenizer(target)
    return target


def add_tokenizer(checkpoint: Path) -> None:
    """Adds a tokenizer whose words are numbers to a checkpoint of any family."""
    vocabulary = json.loads((checkpoint / "config.json").read_text())["vocab_size"]
    tokenizer = Tokenizer(
        models.WordLevel({f" {token}": token for token in range(vocabulary)}, unk_token=" 0")
    )
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(checkpoint / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(settings))


def wav(samples: np.ndarray) -> bytes:
    """A WAV file of 16-bit samples at 16 kHz."""
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.astype("<i2").tobytes())
    return content.getvalue()


def noise(seconds: float) -> np.ndarray:
    """Noise of 16-bit samples; the same for each length."""
    drawn = np.random.default_rng(0).standard_normal(round(seconds * RATE))
    return np.round(3000 * drawn).clip(-(2**15), 2**15 - 1).astype(np.int16)

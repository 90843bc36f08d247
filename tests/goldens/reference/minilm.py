"""Embeddings of real texts by all-MiniLM-L6-v2, as sentence-transformers makes them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer

# Questions, each followed by a sentence that answers it, and sentences of other kinds.
TEXTS = (
    "How long does it take light from the Sun to reach the Earth?",
    "Sunlight travels for about eight minutes and twenty seconds before it arrives here.",
    "Who wrote the first program for a computer?",
    "Ada Lovelace published an algorithm for the Analytical Engine in 1843.",
    "Why does bread rise?",
    "Yeast turns sugar into carbon dioxide, which the dough traps in small bubbles.",
    "What is the boiling point of water on a high mountain?",
    "At lower air pressure, water boils below 100 °C: on Mount Everest near 70 °C.",
    "How do whales sleep?",
    "Half of the animal's brain rests while the other half keeps it breathing.",
    "Which metal is liquid at room temperature?",
    "Mercury melts at -39 °C, so it flows in an ordinary thermometer.",
    "x",
    "ÄÖÜ, naïve café – 東京 and Ελλάδα: accents, dashes and scripts",
    "def add(a, b): return a + b",
    "The quick brown fox jumps over the lazy dog. " * 20,
)


def expect_minilm(directory: Path, parent: Path) -> None:
    """Write the texts with their token ids, and beside them their embeddings."""
    model = SentenceTransformer(str(directory), device="cpu", local_files_only=True)
    embeddings = [model.encode(text, convert_to_numpy=True) for text in TEXTS]
    token_ids = [model.tokenizer(text)["input_ids"] for text in TEXTS]
    content = [{"text": text, "token_ids": ids} for text, ids in zip(TEXTS, token_ids, strict=True)]
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in content)
    (parent / "minilm.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    path = parent / "minilm.safetensors"
    save_file({"embeddings": np.stack(embeddings)}, path)
    path.chmod(0o644)  # Its writer lets nobody else read it.

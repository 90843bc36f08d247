"""Tiny text encoders with their heads, and what the reference answers for random texts.

Heads of embeddings are modules of sentence-transformers, which saves and computes them itself.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import sentence_transformers
import torch
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import (
    AutoModel,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    DistilBertForSequenceClassification,
    DistilBertModel,
    MPNetForMaskedLM,
    MPNetForSequenceClassification,
    PreTrainedModel,
    RobertaForSequenceClassification,
    XLMRobertaForMaskedLM,
    XLMRobertaForTokenClassification,
)

from .model import Float64, GoldenError

# Digits of the numbers in a JSON file; float32 has about seven.
DIGITS = 7
# Least change of an answer, at its largest number, for a property to matter.
LEAST_CHANGE = 1e-4
# Dimensions of all: heads of 12 and an inner width that no vector divides.
SMALL = {
    "hidden_size": 36,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "intermediate_size": 52,
    "vocab_size": 101,
    "max_position_embeddings": 44,
}
SMALL_DISTIL = {
    "dim": 32,
    "n_heads": 2,
    "n_layers": 2,
    "hidden_dim": 68,
    "vocab_size": 103,
    "max_position_embeddings": 40,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TinyEncoder:
    """One random encoder: its dimensions, its quirks and how its weights are drawn.

    Attributes:
        name: Folder under ``tests/goldens``, and name of the JSON beside it.
        seed: Seed of weights and texts.
        model: The reference's class.
        config: Differences from the defaults of the model's configuration.
        modules: Modules of sentence-transformers after the encoder, in the folders of their names.
        matters: Changes of the configuration each of which must change an answer.
        activation: Turns logits into scores; None for embeddings.
        activation_file: Written to ``config.json``, for a model whose activation it names.
        base_model: Save it without the prefix of its tensors' names.
        old_norms: Call gains and biases of norms as the first checkpoints did.
        dtype: Type of the weights on disk; the reference computes in float64 in any case.
    """

    name: str
    seed: int
    model: type[PreTrainedModel]
    config: dict[str, Any]
    modules: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    matters: Sequence[dict[str, Any]] = ()
    activation: str | None = None
    activation_file: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    base_model: bool = False
    old_norms: bool = False
    dtype: torch.dtype = torch.float16


TINY_ENCODERS = (
    # As all-MiniLM-L6-v2, with a dense module.
    TinyEncoder(
        name="bert-embedder",
        seed=1,
        model=BertModel,
        config={**SMALL, "layer_norm_eps": 1e-2},
        modules={
            "1_Pooling": lambda: Pooling(36, "mean"),
            "2_Dense": lambda: Dense(36, 20),
            "3_Normalize": Normalize,
        },
        matters=[{"layer_norm_eps": 1e-12}, {"hidden_act": "gelu_new"}],
        dtype=torch.float32,
    ),
    # As a reranker of sentence-transformers before version 4, with norms named as at first.
    TinyEncoder(
        name="bert-reranker",
        seed=2,
        model=BertForSequenceClassification,
        config={**SMALL, "hidden_act": "relu", "num_labels": 1},
        matters=[{"hidden_act": "gelu"}],
        activation="identity",
        activation_file={
            "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"
        },
        old_norms=True,
    ),
    TinyEncoder(
        name="bert-tagger",
        seed=3,
        model=BertForTokenClassification,
        config={**SMALL, "type_vocab_size": 3, "num_labels": 5},
        activation="softmax",
    ),
    # Several labels at a time, and a padding token whose id is not the usual one.
    TinyEncoder(
        name="roberta-labels",
        seed=4,
        model=RobertaForSequenceClassification,
        config={
            **SMALL,
            "type_vocab_size": 1,
            "pad_token_id": 4,
            "num_labels": 6,
            "problem_type": "multi_label_classification",
        },
        matters=[{"pad_token_id": 3}],
        activation="sigmoid",
    ),
    # As bge-m3, saved with the head that it was first trained with.
    TinyEncoder(
        name="xlm-roberta-embedder",
        seed=5,
        model=XLMRobertaForMaskedLM,
        config={**SMALL, "type_vocab_size": 1},
        modules={"1_Pooling": lambda: Pooling(36, "cls"), "2_Normalize": Normalize},
    ),
    TinyEncoder(
        name="xlm-roberta-tagger",
        seed=6,
        model=XLMRobertaForTokenClassification,
        config={**SMALL, "type_vocab_size": 1, "num_labels": 3},
        activation="softmax",
    ),
    TinyEncoder(
        name="distilbert-classifier",
        seed=7,
        model=DistilBertForSequenceClassification,
        config={**SMALL_DISTIL, "num_labels": 2},
        activation="softmax",
        matters=[{"activation": "relu"}],
    ),
    # Several ways to pool, one after the other.
    TinyEncoder(
        name="distilbert-embedder",
        seed=8,
        model=DistilBertModel,
        config=SMALL_DISTIL,
        modules={
            "1_Pooling": lambda: Pooling(
                32, ("max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
            )
        },
        base_model=True,
    ),
    # As all-mpnet-base-v2, with distances beyond the last bucket.
    TinyEncoder(
        name="mpnet-embedder",
        seed=9,
        model=MPNetForMaskedLM,
        config={**SMALL, "max_position_embeddings": 152},
        modules={"1_Pooling": lambda: Pooling(36, "mean"), "2_Normalize": Normalize},
    ),
    TinyEncoder(
        name="mpnet-classifier",
        seed=10,
        model=MPNetForSequenceClassification,
        config={**SMALL, "num_labels": 3, "relative_attention_num_buckets": 40},
        activation="softmax",
    ),
)

# Standard deviation of a parameter whose name has this part; the first that fits counts.
WEIGHT_SPREADS = (
    (".bias", 0.2),
    ("relative_attention_bias.weight", 2.0),
    ("word_embeddings.weight", 0.6),
    ("position_embeddings.weight", 0.6),
    ("token_type_embeddings.weight", 0.6),
    ("weight", 0.25),
)
# Parts of the names of layer norms, whose gains are around 1.
LAYER_NORMS = ("LayerNorm.", "layer_norm.")


def write_encoder(tiny: TinyEncoder, parent: Path) -> Path:
    """Write ``tiny`` in the Hugging Face layout and return its directory in ``parent``."""
    rng = np.random.default_rng(tiny.seed)
    model = tiny.model(tiny.model.config_class(**tiny.config))
    _draw(model, rng)
    model.to(tiny.dtype)
    directory = parent / tiny.name
    shutil.rmtree(directory, ignore_errors=True)
    (model.base_model if tiny.base_model else model).save_pretrained(directory)
    _change_json(directory / "config.json", **tiny.activation_file)
    if tiny.old_norms:
        path = directory / "model.safetensors"
        tensors = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                "LayerNorm.bias", "LayerNorm.beta"
            ): tensor
            for name, tensor in load_file(path).items()
        }
        save_file(tensors, path, metadata={"format": "pt"})
    if tiny.modules:
        _write_modules(tiny, directory, rng)
    for path in directory.rglob("*.safetensors"):
        path.chmod(0o644)  # Their writer lets nobody else read them.
    return directory


def expect_encoder(tiny: TinyEncoder, parent: Path) -> None:
    """Write the answers of the reference beside the checkpoint's folder.

    Raises:
        GoldenError: A property of the checkpoint changes no answer.
    """
    directory = parent / tiny.name
    texts = _texts(tiny)
    answers = _answers(tiny, directory, texts)
    for change in tiny.matters:
        changed = _answers(tiny, directory, texts, **change)
        if max(map(_distance, answers, changed)) < LEAST_CHANGE:
            raise GoldenError(f"{tiny.name}: {change} changes nothing")
    untyped = [{**text, "token_type_ids": [0] * len(text["input_ids"])} for text in texts]
    if "token_type_ids" in texts[0]:
        changed = _answers(tiny, directory, untyped)
        if max(map(_distance, answers, changed)) < LEAST_CHANGE:
            raise GoldenError(f"{tiny.name}: types of tokens change nothing")
    content = {
        "checkpoint": tiny.name,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "sentence_transformers": sentence_transformers.__version__,
            "safetensors": safetensors.__version__,
            "numpy": np.__version__,
        },
        "output": "scores" if tiny.activation else "embedding",
        "cases": [
            {**text, "expected": np.round(answer, DIGITS).tolist()}
            for text, answer in zip(texts, answers, strict=True)
        ],
    }
    lines = json.dumps(content, indent=None).replace('{"input_ids"', '\n  {"input_ids"')
    (parent / f"{tiny.name}.json").write_text(lines + "\n")


def _draw(model: torch.nn.Module, rng: np.random.Generator) -> None:
    for name, parameter in sorted(model.named_parameters()):
        values = rng.standard_normal(tuple(parameter.shape))
        if any(part in name for part in LAYER_NORMS) and name.endswith(".weight"):
            values = 1.0 + 0.3 * values
        else:
            values *= next(spread for part, spread in WEIGHT_SPREADS if part in name)
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(values))


def _write_modules(tiny: TinyEncoder, directory: Path, rng: np.random.Generator) -> None:
    entries = [{"idx": 0, "name": "0", "path": "", "type": _class_name(Transformer)}]
    for index, (folder, make) in enumerate(tiny.modules.items(), 1):
        module = make()
        _draw(module, rng)
        (directory / folder).mkdir()
        module.save(str(directory / folder))
        entries.append(
            {"idx": index, "name": str(index), "path": folder, "type": _class_name(type(module))}
        )
    (directory / "modules.json").write_text(json.dumps(entries, indent=2) + "\n")


def _class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _change_json(path: Path, **values: Any) -> None:
    content = json.loads(path.read_text()) | values
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def _texts(tiny: TinyEncoder) -> list[dict[str, list[int]]]:
    """Token ids of random texts, of one token up to as many as the model takes."""
    rng = np.random.default_rng([tiny.seed, 1])
    config = tiny.model.config_class(**tiny.config)
    longest = config.max_position_embeddings
    if config.model_type not in {"bert", "distilbert"}:
        longest -= 2 if config.model_type == "mpnet" else config.pad_token_id + 1
    texts = []
    for length in (1, 2, 9, 23, longest):
        token_ids = rng.integers(config.vocab_size, size=length)
        if length == 23 and config.pad_token_id is not None:
            token_ids[7] = config.pad_token_id  # Has no position in some families.
        text = {"input_ids": token_ids.tolist()}
        if (types := getattr(config, "type_vocab_size", 0)) > 1:
            text["token_type_ids"] = np.sort(rng.integers(types, size=length)).tolist()
        texts.append(text)
    return texts


@torch.inference_mode()
def _answers(
    tiny: TinyEncoder, directory: Path, texts: list[dict[str, list[int]]], **change: Any
) -> list[np.ndarray]:
    """What the reference answers for each text alone, in float64."""
    kind = tiny.model if tiny.activation else AutoModel
    model = kind.from_pretrained(
        directory, dtype=torch.float64, attn_implementation="eager", local_files_only=True, **change
    ).eval()
    modules = [
        type(make()).load(str(directory), subfolder=folder).double().eval()
        for folder, make in tiny.modules.items()
    ]
    answers = []
    with Float64():
        for text in texts:
            inputs = {name: torch.tensor([values]) for name, values in text.items()}
            inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
            output = model(**inputs)
            if tiny.activation:
                answers.append(_scores(output.logits[0], tiny.activation).numpy())
                continue
            features = {
                "token_embeddings": output.last_hidden_state,
                "attention_mask": inputs["attention_mask"],
            }
            for module in modules:
                features = module(features)
            answers.append(features["sentence_embedding"][0].numpy())
    return answers


def _scores(logits: torch.Tensor, activation: str) -> torch.Tensor:
    if activation == "softmax":
        return logits.softmax(-1)
    return logits.sigmoid() if activation == "sigmoid" else logits


def _distance(some: np.ndarray, others: np.ndarray) -> float:
    return float(np.abs(some - others).max())

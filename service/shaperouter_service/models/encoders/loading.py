"""Loading a text encoder of any family with its head onto the device."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from shaperouter_service.checkpoints.number_types import DType
from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.checkpoints.sentence_transformers import (
    SentenceTransformer,
    read_sentence_transformer,
)
from shaperouter_service.models.config import Config
from shaperouter_service.models.encoders.bert import Bert
from shaperouter_service.models.encoders.distilbert import DistilBert
from shaperouter_service.models.encoders.heads import Classifier, Embedder, Head, TokenClassifier
from shaperouter_service.models.encoders.model import EncoderModel
from shaperouter_service.models.encoders.mpnet import MPNet
from shaperouter_service.models.encoders.pooling import read_steps
from shaperouter_service.models.encoders.roberta import Roberta, XlmRoberta
from shaperouter_service.models.encoders.text_encoder import TextEncoder
from shaperouter_service.models.weight_loading import (
    StartReading,
    load_weights,
    read_now,
    warn_of_unused,
)
from shaperouter_service.models.weights import Role
from shaperouter_service.system.populated_memory import PopulatedMemory

ENCODERS: Mapping[str, type[TextEncoder]] = {
    family.name: family for family in (Bert, Roberta, XlmRoberta, DistilBert, MPNet)
}
# How the names of Transformers' classes end; those without a head of their own embed texts.
BASES = ("Model", "ForMaskedLM", "ForPreTraining")
TEXT_CLASSIFIER, TOKEN_CLASSIFIER = "ForSequenceClassification", "ForTokenClassification"
# Activations of scores by the names of PyTorch's classes.
ACTIVATIONS = {"Identity": "identity", "Sigmoid": "sigmoid", "Softmax": "softmax"}
# A number above this one would take much memory for names alone, and is refused at once.
MAX_LABELS = 2**20
# Activations by `problem_type`, as in Transformers.
PROBLEMS = {
    "regression": "identity",
    "multi_label_classification": "sigmoid",
    "single_label_classification": "softmax",
}


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """See `weight_memory.Layout`."""

    stacks: Mapping[str, int]
    roles: Mapping[str, Role]


def is_encoder(config: Mapping[str, Any]) -> bool:
    """Whether the content of a config.json is that of a text encoder."""
    # `read_family` refuses anything but a name.
    return str(config.get("model_type")) in ENCODERS


def read_encoder(checkpoint: Checkpoint) -> tuple[TextEncoder, Head, SentenceTransformer]:
    """Reads the dimensions of a checkpoint's encoder, its head, and sentence-transformers' files.

    Raises:
        StartupError: The model is of another family or has a head that is not supported, or a
            value is unusable.
    """
    config = Config(checkpoint.directory / "config.json", checkpoint.config)
    family = ENCODERS[config.choice("model_type", "", ENCODERS)]
    encoder = family.from_config(config.with_own_names(family.other_names))
    files = read_sentence_transformer(checkpoint.directory)
    known = [family.class_prefix + end for end in (*BASES, TEXT_CLASSIFIER, TOKEN_CLASSIFIER)]
    named = config.values.get("architectures") or [known[0]]
    if not isinstance(named, list) or not (found := [each for each in known if each in named]):
        raise config.error(
            f"architectures must name one of {', '.join(known)}, got {named!r}: a model with "
            "another head is not supported"
        )
    architecture = found[-1].removeprefix(family.class_prefix)
    if files.modules or architecture in BASES:
        steps = read_steps(checkpoint.directory, files)
        return encoder, Embedder(width=encoder.width, steps=steps), files
    labels = _labels(config)
    if architecture == TOKEN_CLASSIFIER:
        head: Head = TokenClassifier(width=encoder.width, labels=labels, activation="softmax")
    else:
        activation = _activation(config, files, len(labels))
        head = Classifier(encoder=encoder, labels=labels, activation=activation)
    return encoder, head, files


def load_encoder(
    name: str,
    directory: Path,
    dtype: DType,
    *,
    packed: bool = False,
    start_reading: StartReading = read_now,
    populated: PopulatedMemory | None = None,
) -> EncoderModel:
    """Reads a text encoder's checkpoint onto the device; see `load_model`.

    Raises:
        StartupError: The directory lacks a file or a tensor, a tensor has a wrong shape, a value of
            a configuration is unusable, or the architecture is unknown.
    """
    checkpoint = Checkpoint(directory, only_headers=True)
    encoder, head, files = read_encoder(checkpoint)

    def read_weights(
        checkpoint: Checkpoint, dtype: np.dtype[Any]
    ) -> Iterator[tuple[str, np.ndarray]]:
        yield from encoder.read_weights(checkpoint, dtype)
        yield from head.read_weights(checkpoint, dtype)

    loaded = load_weights(
        name,
        checkpoint,
        _Layout(stacks=encoder.stacks, roles={**encoder.roles, **head.roles}),
        read_weights,
        tf.as_dtype(dtype),
        packed=packed,
        start_reading=start_reading,
        populated=populated,
    )
    unused = sorted(each for each in checkpoint.unread if not encoder.redundant.fullmatch(each))
    warn_of_unused(name, unused)
    max_length = encoder.max_length
    return EncoderModel(
        name=name,
        encoder=encoder,
        head=head,
        weights=loaded.weights,
        dtype=loaded.dtype,
        weight_dtype=loaded.weight_dtype,
        parameters=loaded.parameters,
        weight_bytes=sum(loaded.sizes.values()),
        max_length=min(max_length, files.max_length or max_length),
        text_prompt=files.prompt if isinstance(head, Embedder) else "",
        lowercases_text=files.lowercases,
    )


def _labels(config: Config) -> tuple[str, ...]:
    """The names of the classes; missing values default as in Transformers."""
    by_id = config.values.get("id2label")
    if by_id is None:
        count = config.number("num_labels", int, 2, at_least=1, at_most=MAX_LABELS)
        return tuple(f"LABEL_{index}" for index in range(count))
    ids = [str(index) for index in range(len(by_id))] if isinstance(by_id, dict) else []
    if not ids or set(map(str, by_id)) != set(ids):
        raise config.error(f"id2label must name the classes from 0, got {by_id!r}")
    names = {str(index): str(label) for index, label in by_id.items()}
    return tuple(names[index] for index in ids)


def _activation(config: Config, files: SentenceTransformer, labels: int) -> str:
    """What turns logits into scores: as sentence-transformers says, or as in Transformers."""
    of_library = config.values.get("sentence_transformers")
    named = (
        files.activation
        or (of_library.get("activation_fn") if isinstance(of_library, dict) else None)
        or config.values.get("sbert_ce_default_activation_function")
    )
    if named is not None:
        kind = str(named).rpartition(".")[2]
        if kind not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise config.error(f"activation_fn must be one of {known}, got {named!r}")
        return ACTIVATIONS[kind]
    problem = config.choice("problem_type", "single_label_classification", PROBLEMS)
    # The softmax of a single logit is 1 for every text.
    if problem == "single_label_classification" and labels == 1:
        return "sigmoid"
    return PROBLEMS[problem]

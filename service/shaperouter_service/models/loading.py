"""Loading a model of any family onto the device."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from shaperouter_service.errors import StartupError
from shaperouter_service.limits import MAX_EOS_TOKENS
from shaperouter_service.models.checkpoint import Checkpoint
from shaperouter_service.models.config import Config
from shaperouter_service.models.family import Family
from shaperouter_service.models.gpt2 import GPT2

FAMILIES: Mapping[str, type[Family]] = {family.name: family for family in (GPT2,)}

DTYPE = tf.float32


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model in memory.

    Attributes:
        name: As requests call it.
        family: Its dimensions and forward pass.
        weights: Variables on the device, by name; never written after loading.
        parameters: Number of parameters.
        weight_bytes: Memory of the weights.
        eos_token_ids: Tokens that end a generation unless a request names others.
        do_sample: Whether to sample unless a request says; from generation_config.json.
        temperature: Temperature unless a request says; from generation_config.json.
    """

    name: str
    family: Family
    weights: Mapping[str, tf.Variable]
    parameters: int
    weight_bytes: int
    eos_token_ids: tuple[int, ...]
    do_sample: bool
    temperature: float


def load_model(name: str, directory: Path) -> Model:
    """Reads a checkpoint onto the device.

    Args:
        name: As requests will call the model.
        directory: A model directory in the Hugging Face layout.

    Raises:
        StartupError: The directory lacks a file or a tensor, a tensor has a wrong shape, or the
            architecture is not known.
    """
    with Checkpoint(directory) as checkpoint:
        model_type = str(checkpoint.config.get("model_type"))
        if model_type not in FAMILIES:
            raise StartupError(
                f"{directory / 'config.json'}: model_type must be one of {', '.join(FAMILIES)}, "
                f"got {model_type!r}"
            )
        family = FAMILIES[model_type].from_config(
            Config(directory / "config.json", checkpoint.config)
        )
        weights = {}
        for weight_name, array in family.read_weights(checkpoint, DTYPE.as_numpy_dtype):
            weights[weight_name] = tf.Variable(array, trainable=False, name=weight_name)
        parameters = sum(variable.shape.num_elements() for variable in weights.values())
        generation = Config(
            directory / "generation_config.json", checkpoint.generation_config or {}
        )
        return Model(
            name=name,
            family=family,
            weights=weights,
            parameters=parameters,
            weight_bytes=parameters * DTYPE.size,
            eos_token_ids=_eos_token_ids(checkpoint, family),
            do_sample=generation.value("do_sample", bool, False),
            temperature=generation.value("temperature", float, 1.0),
        )


def _eos_token_ids(checkpoint: Checkpoint, family: Family) -> tuple[int, ...]:
    # As in Transformers: generation_config.json speaks alone where there is one.
    if checkpoint.generation_config is not None:
        value = checkpoint.generation_config.get("eos_token_id")
    else:
        value = checkpoint.config.get("eos_token_id", family.default_eos_token_id)
    ids: list[Any] = value if isinstance(value, list) else [] if value is None else [value]
    for token in ids:
        if type(token) is not int or token < 0:
            raise StartupError(f"{checkpoint.directory}: eos_token_id must be ids, got {token!r}")
    # An end token that the vocabulary lacks can never be produced.
    known = tuple(dict.fromkeys(token for token in ids if token < family.vocab_size))
    if len(known) > MAX_EOS_TOKENS:
        raise StartupError(
            f"{checkpoint.directory}: eos_token_id must have at most {MAX_EOS_TOKENS} ids, got "
            f"{len(known)}"
        )
    return known

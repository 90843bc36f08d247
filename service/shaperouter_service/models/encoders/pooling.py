"""The modules of sentence-transformers after an encoder, which make one vector of each text."""

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import tensorflow as tf

from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.checkpoints.sentence_transformers import Module, SentenceTransformer
from shaperouter_service.models.config import Config
from shaperouter_service.models.encoders.tokens import Tokens
from shaperouter_service.models.layers import linear
from shaperouter_service.models.weights import Weights

# Smallest number that sums and lengths are divided by, as in sentence-transformers and PyTorch.
MIN_COUNT = 1e-9
MIN_LENGTH = 1e-12
# Activations of a dense module, by the names of PyTorch's classes.
DENSE_ACTIVATIONS: Mapping[str, str | None] = {
    "Identity": None,
    "Tanh": "tanh",
    "ReLU": "relu",
    "GELU": "gelu",
    "SiLU": "silu",
}
# What sentence-transformers wrote before `pooling_mode`, in the order of the parts of a vector.
OLD_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


class Step(abc.ABC):
    """A module; pure functions over weights."""

    def output_width(self, width: int) -> int:
        """Width of its output for an input of this width."""
        return width

    def read_weights(self, width: int, dtype: np.dtype[Any]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields its weights for an input of this width, converted to `dtype`.

        Raises:
            StartupError: A weight is missing or has a wrong shape.
        """
        del width, dtype
        yield from ()

    @abc.abstractmethod
    def __call__(self, weights: Weights, name: str, tokens: Tokens, x: tf.Tensor) -> tf.Tensor:
        """Computes the module; `name` begins the names of its weights."""


@dataclass(frozen=True, kw_only=True)
class Pool(Step):
    """Pools hidden states [M, E] to [R, E], or to [R, n E] with n modes.

    Attributes:
        modes: Names of ways to pool, from `POOLS`.
    """

    modes: Sequence[str]

    @classmethod
    def of(cls, module: Module, files: SentenceTransformer) -> Self:
        """Reads the configuration of a pooling module."""
        config = Config(module.directory / "config.json", module.config)
        found = config.values.get("pooling_mode")
        if found is None:
            flags = {mode: config.value(key, bool, False) for key, mode in OLD_MODES.items()}
            found = [mode for mode, is_used in flags.items() if is_used] or ["mean"]
        modes = [found] if isinstance(found, str) else found
        # Not `in POOLS`, because a list has no hash.
        if not isinstance(modes, list) or not modes or any(mode not in [*POOLS] for mode in modes):
            raise config.error(f"pooling_mode must be of {', '.join(POOLS)}, got {found!r}")
        if not config.value("include_prompt", bool, True) and files.prompt:
            raise config.error("include_prompt must be true for a model with a default prompt")
        return cls(modes=tuple(modes))

    def output_width(self, width: int) -> int:
        return len(self.modes) * width

    def __call__(self, weights: Weights, name: str, tokens: Tokens, x: tf.Tensor) -> tf.Tensor:
        del weights, name
        parts = [tf.cast(POOLS[mode](tokens, x), x.dtype) for mode in self.modes]
        return parts[0] if len(parts) == 1 else tf.concat(parts, axis=-1)


@dataclass(frozen=True, kw_only=True)
class Dense(Step):
    """A product with a bias and an activation.

    Attributes:
        directory: Folder of its weights.
        inputs: Width of its input.
        outputs: Width of its output.
        has_bias: Whether it has a bias.
        activation: One of `ACTIVATIONS`, or None.
    """

    # Not compared or shown: a model is the same wherever it lies.
    directory: Path = field(compare=False, repr=False)
    inputs: int
    outputs: int
    has_bias: bool
    activation: str | None

    @classmethod
    def of(cls, module: Module, files: SentenceTransformer) -> Self:
        """Reads the configuration of a dense module."""
        del files
        config = Config(module.directory / "config.json", module.config)
        _only(config, module_input_name="sentence_embedding", use_residual=False)
        _only(config, module_output_name="sentence_embedding")
        activation = config.value("activation_function", str, "Tanh")
        package, _, kind = activation.rpartition(".")
        is_ours = not package or f"{package}.".startswith("torch.nn.")
        if kind not in DENSE_ACTIVATIONS or not is_ours:
            known = ", ".join(DENSE_ACTIVATIONS)
            raise config.error(f"activation_function must be one of {known}, got {activation!r}")
        return cls(
            directory=module.directory,
            inputs=config.value("in_features", int, 0),
            outputs=config.value("out_features", int, 0),
            has_bias=config.value("bias", bool, True),
            activation=DENSE_ACTIVATIONS[kind],
        )

    def output_width(self, width: int) -> int:
        del width
        return self.outputs

    def read_weights(self, width: int, dtype: np.dtype[Any]) -> Iterator[tuple[str, np.ndarray]]:
        checkpoint = Checkpoint(self.directory)
        if self.inputs != width:
            path = self.directory / "config.json"
            raise Config(path, {}).error(f"in_features must be {width}, got {self.inputs}")
        yield (
            "weight",
            checkpoint.read(
                "linear.weight", shape=(self.outputs, width), dtype=dtype, transposed=True
            ),
        )
        if self.has_bias:
            yield "bias", checkpoint.read("linear.bias", shape=(self.outputs,), dtype=dtype)

    def __call__(self, weights: Weights, name: str, tokens: Tokens, x: tf.Tensor) -> tf.Tensor:
        del tokens
        return linear(weights, name, x, self.activation)


@dataclass(frozen=True, kw_only=True)
class Normalize(Step):
    """Scales vectors to a length of 1."""

    @classmethod
    def of(cls, module: Module, files: SentenceTransformer) -> Self:
        """Checks the configuration of a module."""
        del files
        config = Config(module.directory / "config.json", module.config)
        _only(config, module_input_name="sentence_embedding")
        _only(config, module_output_name="sentence_embedding")
        return cls()

    def __call__(self, weights: Weights, name: str, tokens: Tokens, x: tf.Tensor) -> tf.Tensor:
        del weights, name, tokens
        exact = tf.cast(x, tf.float32)
        length = tf.sqrt(tf.reduce_sum(tf.square(exact), axis=-1, keepdims=True))
        return exact / tf.maximum(length, MIN_LENGTH)


STEPS: Mapping[str, Callable[[Module, SentenceTransformer], Step]] = {
    "Pooling": Pool.of,
    "Dense": Dense.of,
    "Normalize": Normalize.of,
}


def read_steps(directory: Path, files: SentenceTransformer) -> Sequence[Step]:
    """The modules that follow the encoder; those of a plain checkpoint take the mean of tokens.

    Raises:
        StartupError: A module is unknown or has an unusable value, or the first one does not pool.
    """
    if files.modules is None:
        return (Pool(modes=("mean",)),)
    path = directory / "modules.json"
    kinds = [module.kind for module in files.modules]
    unknown = [kind for kind in kinds if kind not in STEPS]
    if unknown:
        raise Config(path, {}).error(
            f"modules after the first must be of {', '.join(STEPS)}, got {unknown[0]}"
        )
    if not kinds or kinds[0] != "Pooling" or "Pooling" in kinds[1:]:
        raise Config(path, {}).error(
            f"the second module, and no other, must be Pooling, got {', '.join(kinds) or 'none'}"
        )
    return tuple(STEPS[module.kind](module, files) for module in files.modules)


def _only(config: Config, **supported: Any) -> None:
    for name, value in supported.items():
        found = config.values.get(name)
        if found is not None and found != value:
            raise config.error(f"{name} must be {value!r}, got {found!r}")


def _shares(tokens: Tokens) -> tf.Tensor:
    """1 for each token and 0 elsewhere, [R, S, 1] float32."""
    return tf.cast(tokens.visible, tf.float32)[..., tf.newaxis]


def _count(tokens: Tokens) -> tf.Tensor:
    return tf.maximum(tf.reduce_sum(_shares(tokens), axis=1), MIN_COUNT)


def _weighted_mean(tokens: Tokens, x: tf.Tensor) -> tf.Tensor:
    """The mean with weights 1, 2, 3… from the first token."""
    shares = _shares(tokens)
    start = tf.argmax(tokens.visible, axis=1, output_type=tf.int32)
    place = tf.range(tokens.visible.shape[1]) - start[:, tf.newaxis] + 1
    shares *= tf.cast(place, tf.float32)[..., tf.newaxis]
    total = tf.reduce_sum(tf.cast(tokens.padded(x), tf.float32) * shares, axis=1)
    return total / tf.maximum(tf.reduce_sum(shares, axis=1), MIN_COUNT)


def _max(tokens: Tokens, x: tf.Tensor) -> tf.Tensor:
    exact = tf.cast(tokens.padded(x), tf.float32)
    return tf.reduce_max(tf.where(tokens.visible[..., tf.newaxis], exact, exact.dtype.min), axis=1)


def _last(tokens: Tokens, x: tf.Tensor) -> tf.Tensor:
    length = tokens.visible.shape[1]
    end = length - 1 - tf.argmax(tokens.visible[:, ::-1], axis=1, output_type=tf.int32)
    return tf.gather(tokens.padded(x), end, batch_dims=1)


POOLS: Mapping[str, Callable[[Tokens, tf.Tensor], tf.Tensor]] = {
    "cls": lambda tokens, x: tokens.first(x),
    "max": _max,
    "mean": lambda tokens, x: tokens.total(x) / _count(tokens),
    "mean_sqrt_len_tokens": lambda tokens, x: tokens.total(x) / tf.sqrt(_count(tokens)),
    "weightedmean": _weighted_mean,
    "lasttoken": _last,
}

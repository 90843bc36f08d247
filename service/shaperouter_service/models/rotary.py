"""Rotary positions (Su et al. 2021): queries and keys are rotated by angles of their positions."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from shaperouter_service.models.config import Config

# Largest factor of LongRoPE; published ones are below 100.
_MAX_FACTOR = 1e6

# Values of `rope_type`, as in Transformers.
_TYPES = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """The angles of positions.

    Attributes:
        frequencies: Angle by which each pair of numbers of a head turns from one position to the
            next. Numbers of a head beyond the pairs are not turned.
        scale: Factor of sines and cosines.
        max_length: Maximum number of positions for which these frequencies hold; None if they
            always do.
    """

    frequencies: tuple[float, ...]
    scale: float = 1.0
    max_length: int | None = None

    @property
    def none(self) -> "Rotary":
        """Frequencies that turn nothing, for layers without positions."""
        return Rotary(frequencies=(0.0,) * len(self.frequencies))


def read_rotary(
    config: Config,
    head_size: int,
    *,
    theta: float = 10000.0,
    may_be_partial: bool = False,
    parameters: Mapping[str, Any] | None = None,
) -> Rotary:
    """Reads the frequencies of a model, as Transformers does.

    Args:
        config: Content of config.json.
        head_size: D, size of a head.
        theta: The base of the frequencies if the config has none.
        may_be_partial: Whether this family can turn only a part of a head.
        parameters: What the config says about them; by default its `rope_scaling` (until version 4
            of Transformers) or `rope_parameters`.

    Raises:
        StartupError: A value is unusable.
    """
    if parameters is None:
        parameters = rope_parameters(config)
    if any(isinstance(value, dict) for value in parameters.values()):
        raise config.error(
            f"rope_parameters must be the same for all layers of this family, got {parameters!r}"
        )
    own = Config(config.path, parameters)
    kind = own.choice("rope_type", str(parameters.get("type") or "default"), _TYPES)
    theta = own.value("rope_theta", float, config.value("rope_theta", float, theta))
    if theta <= 1:
        raise config.error(f"rope_theta must be above 1, got {theta}")
    name = "partial_rotary_factor"
    partial = config.number(name, float, 1.0, above=0, at_most=1)
    partial = own.number(name, float, partial, above=0, at_most=1)
    if partial != 1 and not may_be_partial:
        raise config.error(f"{name} must be 1 for this family, got {partial}")
    turned = int(head_size * partial)
    if not 2 <= turned <= head_size or turned % 2:
        raise config.error(
            "partial_rotary_factor must turn an even number of a head's "
            f"{head_size} numbers, got {turned}"
        )
    plain = theta ** -(np.arange(0, turned, 2) / turned)
    if kind == "linear":
        return _rotary(plain / own.value("factor", float, 1.0))
    if kind in ("default", "dynamic"):
        # Dynamic scaling changes no sequence within `max_position_embeddings`, and we serve no
        # longer ones.
        return _rotary(plain)
    max_length = config.value("max_position_embeddings", int, 2048)
    # Phi-3 has its own value beside the others, which takes precedence.
    original = config.value(
        "original_max_position_embeddings",
        int,
        own.value("original_max_position_embeddings", int, max_length),
    )
    if original < 2:
        raise config.error(f"original_max_position_embeddings must be at least 2, got {original}")
    factor = own.value("factor", float, max_length / original)
    if kind == "llama3":
        return _rotary(_of_llama3(own, plain, factor, original))
    if kind == "yarn":
        frequencies = _of_yarn(own, plain, factor, original, theta)
        return _rotary(frequencies, _scale_of_yarn(own, factor))
    return _of_longrope(config, own, plain, factor, original)


def rope_parameters(config: Config) -> Mapping[str, Any]:
    """What a config says about rotary positions; empty if nothing.

    Raises:
        StartupError: It is not a mapping.
    """
    for name in ("rope_scaling", "rope_parameters"):
        value = config.values.get(name)
        if value is not None and not isinstance(value, dict):
            raise config.error(f"{name} must be an object, got {value!r}")
        if value:
            return dict(value)
    return {}


def _rotary(frequencies: np.ndarray, scale: float = 1.0, max_length: int | None = None) -> Rotary:
    values = tuple(map(float, frequencies.astype(np.float32)))
    return Rotary(frequencies=values, scale=scale, max_length=max_length)


def _of_llama3(own: Config, plain: np.ndarray, factor: float, original: int) -> np.ndarray:
    """Long waves are stretched by the factor, short ones not, and those between in part."""
    low = own.value("low_freq_factor", float, 1.0)
    high = own.value("high_freq_factor", float, 4.0)
    if low >= high:
        raise own.error(f"low_freq_factor must be less than high_freq_factor, got {low} and {high}")
    waves = original * plain / (2 * math.pi)
    kept = np.clip((waves - low) / (high - low), 0, 1)
    return (1 - kept) * plain / factor + kept * plain


def _of_yarn(
    own: Config, plain: np.ndarray, factor: float, original: int, theta: float
) -> np.ndarray:
    """Pairs that turn often within the original length are kept, others stretched (Peng 2023)."""
    turned = 2 * len(plain)

    def pair_that_turns(times: float) -> float:
        return turned * math.log(original / (times * 2 * math.pi)) / (2 * math.log(theta))

    low = pair_that_turns(own.value("beta_fast", float, 32.0))
    high = pair_that_turns(own.value("beta_slow", float, 1.0))
    if own.value("truncate", bool, True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, turned - 1)
    span = high - low or 0.001
    stretched = np.clip((np.arange(len(plain)) - low) / span, 0, 1)
    return stretched * plain / factor + (1 - stretched) * plain


def _scale_of_yarn(own: Config, factor: float) -> float:
    def of(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0

    named, of_all = (own.values.get(name) for name in ("mscale", "mscale_all_dim"))
    default = of(1.0)
    if named and of_all:
        default = of(own.value("mscale", float, 1.0)) / of(own.value("mscale_all_dim", float, 1.0))
    return own.value("attention_factor", float, default)


def _of_longrope(
    config: Config, own: Config, plain: np.ndarray, factor: float, original: int
) -> Rotary:
    """The factors of short sequences; those of long ones would change what is in the caches."""
    factors = own.values.get("short_factor")
    if (
        not isinstance(factors, list)
        or len(factors) != len(plain)
        or not all(type(each) in (int, float) and 0 < each <= _MAX_FACTOR for each in factors)
    ):
        raise config.error(
            f"short_factor must be a list of {len(plain)} positive numbers up to {_MAX_FACTOR:g}"
        )
    default = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    scale = own.value("attention_factor", float, default)
    return _rotary(plain / np.asarray(factors, np.float64), scale, original)


def angles(rotaries: tuple[Rotary, ...], positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the cosines and sines of positions.

    Args:
        rotaries: N kinds, with F frequencies each.
        positions: [R, P] int32.

    Returns:
        [N, R, 1, P, F] float32 each.
    """
    frequencies = tf.constant([rotary.frequencies for rotary in rotaries], tf.float32)
    scales = tf.constant([rotary.scale for rotary in rotaries], tf.float32)
    angle = tf.cast(positions, tf.float32)[tf.newaxis, :, tf.newaxis, :, tf.newaxis]
    angle *= frequencies[:, tf.newaxis, tf.newaxis, tf.newaxis]
    scale = tf.reshape(scales, [-1, 1, 1, 1, 1])
    return tf.cos(angle) * scale, tf.sin(angle) * scale


def rotate(x: tf.Tensor, cosines: tf.Tensor, sines: tf.Tensor) -> tf.Tensor:
    """Turns pairs of numbers of each head.

    Args:
        x: [R, H, P, D]. Number `i` of a head is turned together with number `F + i`.
        cosines: [R, 1, P, F] float32.
        sines: [R, 1, P, F] float32.
    """
    pairs, size = cosines.shape[-1], x.shape[-1]
    first, second, rest = tf.split(x, [pairs, pairs, size - 2 * pairs], axis=-1)
    cosines, sines = tf.cast(cosines, x.dtype), tf.cast(sines, x.dtype)
    turned = [first * cosines - second * sines, second * cosines + first * sines]
    return tf.concat([*turned, rest] if size > 2 * pairs else turned, axis=-1)

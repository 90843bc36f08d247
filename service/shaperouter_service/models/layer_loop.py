"""Attention as layers see it, and how the layers of a model are run."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import tensorflow as tf

from shaperouter_service.models.layers import attention
from shaperouter_service.models.weights import Weights


class LayerState(Protocol):
    """What layers have in common besides the hidden states, such as caches.

    Attributes:
        layer: Index of the layer that runs now; `run_layers` sets it.
        caches: What layers change: a structure of tensors.
    """

    layer: int | tf.Tensor
    caches: Any


class Attend(LayerState, Protocol):
    """Self-attention of the current layer over whatever the caller keeps.

    `decoding` passes one that writes a prompt's keys and values into a cache, and one that appends
    the newest tokens to a cache and attends to all that came before.
    """

    def __call__(
        self,
        query: tf.Tensor,
        key: tf.Tensor,
        value: tf.Tensor,
        scale: float,
        *,
        bias: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Keeps keys and values, and attends.

        Args:
            query: [R, H, P, D].
            key: [R, H, P, D].
            value: [R, H, P, D].
            scale: Factor of the scores.
            bias: Added to the scores, [R, H, P, T] float32.

        Returns:
            [R, H, P, D].
        """


class AttendWithSource(Attend, Protocol):
    """The same for a decoder that also attends to what an encoder made of a source."""

    @property
    def positions(self) -> tf.Tensor:
        """The token position of each cache position: [R, T] or [1, T] int32."""

    def to_source(self, query: tf.Tensor, scale: float) -> tf.Tensor:
        """Attends to the source.

        Args:
            query: [R, H, P, D].
            scale: Factor of the scores.

        Returns:
            [R, H, P, D].
        """


class KeepSource(LayerState, Protocol):
    """Takes what the current layer of a decoder attends to of a source."""

    def __call__(self, key: tf.Tensor, value: tf.Tensor) -> None:
        """Keeps keys and values.

        Args:
            key: [R, H, S, D].
            value: [R, H, S, D].
        """


State = TypeVar("State", bound=LayerState)


class EncoderAttention:
    """Self-attention of an encoder, which keeps nothing; an `Attend`."""

    def __init__(self, visible: tf.Tensor) -> None:
        """Says which positions are attended to: boolean, broadcastable to [R, H, S, S]."""
        self.layer: int | tf.Tensor = 0
        self.caches: Any = ()
        self._visible = visible

    def __call__(
        self,
        query: tf.Tensor,
        key: tf.Tensor,
        value: tf.Tensor,
        scale: float,
        *,
        bias: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """See `Attend`."""
        return attention(query, key, value, self._visible, scale, bias=bias)


def run_layers(
    weights: Weights,
    stack: str,
    block: Callable[[Weights, tf.Tensor, State], tf.Tensor],
    x: tf.Tensor,
    state: State,
    *,
    layers: int,
) -> tf.Tensor:
    """Runs equal layers one after the other.

    Where weights are stacked, a graph has one layer and a loop around it, so a deep model is traced
    and compiled as fast as a flat one. Elsewhere it has every layer: XLA's own products would copy
    each layer's weights out of a stack.

    Args:
        weights: Of the model.
        stack: What the names of the layers' weights begin with.
        block: A layer: a function of its weights, of its input and of the state.
        x: Input of the first layer.
        state: Attention, or what else the layers share.
        layers: How many there are.

    Returns:
        Output of the last layer.
    """
    if not weights.is_packed:
        for layer in range(layers):
            state.layer = layer
            x = block(weights.layer(stack, layer), x, state)
        return x

    def run(layer: tf.Tensor, x: tf.Tensor, caches: Any) -> tuple[tf.Tensor, tf.Tensor, Any]:
        state.layer, state.caches = layer, caches
        x = block(weights.layer(stack, layer), x, state)
        return layer + 1, x, state.caches

    _, x, state.caches = tf.while_loop(
        lambda layer, *_: layer < layers, run, (tf.constant(0), x, state.caches)
    )
    return x

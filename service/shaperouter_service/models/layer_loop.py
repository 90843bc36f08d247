"""The interface of attention for layers, and the loop that runs a model's layers."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import tensorflow as tf

from shaperouter_service.models.layers import attention
from shaperouter_service.models.weights import Weights


class LayerState(Protocol):
    """State that layers share besides the hidden states, such as caches.

    Attributes:
        layer: Index of the current layer, set by `run_layers`.
        caches: Structure of the tensors that layers change.
    """

    layer: int | tf.Tensor
    caches: Any


class Attend(LayerState, Protocol):
    """Self-attention of the current layer over the keys and values that the caller keeps.

    `decoding` has one implementation that writes a prompt's keys and values into a cache, and one
    that appends the newest tokens to a cache and attends to all tokens so far.
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
        """Stores keys and values, and attends.

        Args:
            query: [R, H, P, D].
            key: [R, H, P, D].
            value: [R, H, P, D].
            scale: Factor of the scores.
            bias: Added to the scores, [R, H, P, T] float32.

        Returns:
            [R, H, P, D].
        """


class AttendInWindow(Attend, Protocol):
    """Self-attention of a decoder, whose queries may see only their latest positions."""

    def __call__(
        self,
        query: tf.Tensor,
        key: tf.Tensor,
        value: tf.Tensor,
        scale: float,
        *,
        bias: tf.Tensor | None = None,
        window: tf.Tensor | None = None,
        cap: float = 0.0,
    ) -> tf.Tensor:
        """Stores keys and values, and attends.

        Args:
            query: [R, H * G, P, D]; G heads of queries share each head of keys and values.
            key: [R, H, P, D].
            value: [R, H, P, D].
            scale: Factor of the scores.
            bias: Added to the scores, [R, H * G, P, T] float32.
            window: int32, the number of tokens that a query sees, itself included; None for all.
            cap: Scores are bounded to less than this by a hyperbolic tangent; 0 for no bound.

        Returns:
            [R, H * G, P, D].
        """


class AttendWithSource(Attend, Protocol):
    """Self-attention of a decoder that also attends to the encoder's output."""

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
    """Stores the keys and values of a source for the current layer of a decoder."""

    def __call__(self, key: tf.Tensor, value: tf.Tensor) -> None:
        """Stores keys and values.

        Args:
            key: [R, H, S, D].
            value: [R, H, S, D].
        """


State = TypeVar("State", bound=LayerState)


class EncoderAttention:
    """Self-attention of an encoder, an `Attend` that stores nothing."""

    def __init__(self, visible: tf.Tensor) -> None:
        """Sets the visible positions: boolean, broadcastable to [R, H, S, S]."""
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
    """Runs the equal layers of a stack one after the other.

    If weights are stacked, a graph has one layer in a loop, so a deep model is traced and compiled
    as fast as a shallow one. Otherwise the graph has every layer, because XLA's own products would
    copy each layer's weights out of a stack.

    Args:
        weights: Weights of the model.
        stack: Prefix of the names of the layers' weights.
        block: A layer, as a function of its weights, its input and the state.
        x: Input of the first layer.
        state: Attention, or other state that the layers share.
        layers: Number of layers.

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

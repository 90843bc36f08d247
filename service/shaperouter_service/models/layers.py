"""Layers that families share, as pure functions."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.compiler.xla import xla_data_pb2

from shaperouter_service import kernels
from shaperouter_service.models.weights import DeviceKind, PackedMatrix, Weights

# Products of at most _FEW_ROWS rows are computed in blocks of inputs; the first of _BLOCKS that
# divides the inputs is the size of a block. See `_product_on_cpu`.
_FEW_ROWS = 16
_BLOCKS = range(48, 15, -1)


class _Activation(NamedTuple):
    """An activation as XLA computes it, and as the kernels do if they support it."""

    function: Callable[[tf.Tensor], tf.Tensor]
    of_kernels: kernels.Activation | None


_GELU = _Activation(lambda x: tf.nn.gelu(x, approximate=False), kernels.Activation.GELU)
_GELU_TANH = _Activation(lambda x: tf.nn.gelu(x, approximate=True), kernels.Activation.GELU_TANH)
_SILU = _Activation(tf.nn.silu, kernels.Activation.SILU)

# Named after Transformers' `hidden_act` / `activation_function` values.
ACTIVATIONS = {
    "gelu": _GELU,
    "gelu_fast": _GELU_TANH,
    "gelu_new": _GELU_TANH,
    "gelu_pytorch_tanh": _GELU_TANH,
    "relu": _Activation(tf.nn.relu, kernels.Activation.RELU),
    "silu": _SILU,
    "swish": _SILU,
    "tanh": _Activation(tf.math.tanh, None),
}


def layer_norm(weights: Weights, name: str, x: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Normalizes the last axis (Ba et al. 2016), in float32 whatever type `x` has.

    Args:
        weights: May have a gain, `{name}.weight`, and a bias, `{name}.bias`: both of [E].
        name: Name of the layer.
        x: [..., E].
        epsilon: Added to variances.
    """
    if weights.is_packed:
        gain, bias = weights.get(f"{name}.weight"), weights.get(f"{name}.bias")
        count = weights.needed_rows
        return _native_norm(x, gain, bias, epsilon, centered=True, count=count)
    exact = tf.cast(x, tf.float32)
    mean = tf.reduce_mean(exact, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.math.squared_difference(exact, mean), axis=-1, keepdims=True)
    # As a power: TensorFlow takes 8 ms to lower a reciprocal square root.
    normed = (exact - mean) * tf.pow(variance + epsilon, -0.5)
    if f"{name}.weight" in weights:
        normed *= tf.cast(weights[f"{name}.weight"], tf.float32)
    if f"{name}.bias" in weights:
        normed += tf.cast(weights[f"{name}.bias"], tf.float32)
    return tf.cast(normed, x.dtype)


def rms_norm(
    weights: Weights,
    name: str,
    x: tf.Tensor,
    epsilon: float,
    *,
    gain_offset: float = 0.0,
    of_heads: bool = False,
) -> tf.Tensor:
    """Scales the last axis to a root mean square of 1 (Zhang and Sennrich 2019), in float32.

    Args:
        weights: Have a gain, `{name}.weight` of [E].
        name: Name of the layer.
        x: [..., E].
        epsilon: Added to mean squares.
        gain_offset: Added to the gain.
        of_heads: Whether `x` has heads, [R, H, P, D]: its rows are then not those of products, and
            all of them are computed.
    """
    gain = tf.cast(weights[f"{name}.weight"], tf.float32)
    if gain_offset:
        gain = gain + gain_offset  # not in place: a variable cannot be added to
    if weights.is_packed:
        count = None if of_heads else weights.needed_rows
        return _native_norm(x, gain, None, epsilon, centered=False, count=count)
    exact = tf.cast(x, tf.float32)
    mean_square = tf.reduce_mean(tf.square(exact), axis=-1, keepdims=True)
    normed = exact * tf.pow(mean_square + epsilon, -0.5)
    return tf.cast(normed * gain, x.dtype)


def _native_norm(
    x: tf.Tensor,
    gain: tf.Tensor | None,
    bias: tf.Tensor | None,
    epsilon: float,
    *,
    centered: bool,
    count: tf.Tensor | None,
) -> tf.Tensor:
    """Normalizes the last axis of `x`, [..., E] float32; see `kernels.norm`."""
    rows = tf.reshape(x, [-1, x.shape[-1]])
    normed = kernels.norm(rows, gain, bias, epsilon, centered=centered, count=count)
    return tf.reshape(normed, x.shape)


def linear(
    weights: Weights,
    name: str,
    x: tf.Tensor,
    activation: str | None = None,
    *,
    count: tf.Tensor | None = None,
) -> tf.Tensor:
    """Multiplies the last axis of `x`, [..., I], by a weight.

    The native kernels compute the product if the weight is packed for them, XLA if not;
    `output_logits` does the same for the vocabulary.

    Args:
        weights: Have `{name}.weight` of [I, O], and may have a bias, `{name}.bias` of [O].
        name: Name of the layer.
        x: [..., I].
        activation: Name of one of `ACTIVATIONS`, applied to the product.
        count: [1] int32, the number of rows that are needed, from the first; None for all. The
            native kernels compute no others.

    Returns:
        [..., O].
    """
    rows = tf.reshape(x, [-1, x.shape[-1]])
    bias = weights.get(f"{name}.bias")
    applied = None if activation is None else ACTIVATIONS[activation]
    packed = weights.packed_matrix(f"{name}.weight")
    if packed is not None:
        fused = None if applied is None else applied.of_kernels
        product = _packed_product(packed, rows, bias, fused, count)
        if fused is not None:
            applied = None
    else:
        weight = weights[f"{name}.weight"]
        if weights.device is DeviceKind.CPU:
            product = _product_on_cpu(rows, weight)
        else:
            product = tf.matmul(rows, weight)
        if bias is not None:
            product += bias
    if applied is not None:
        product = applied.function(product)
    return tf.reshape(product, [*x.shape[:-1], product.shape[1]])


def _packed_product(
    packed: PackedMatrix,
    x: tf.Tensor,
    bias: tf.Tensor | None = None,
    activation: kernels.Activation | None = None,
    count: tf.Tensor | None = None,
) -> tf.Tensor:
    """Multiplies [M, I] by a packed weight."""
    return kernels.linear(
        x,
        packed.panels,
        packed.shape,
        layer=packed.layer,
        scales=packed.scales,
        bias=bias,
        activation=activation or kernels.Activation.NONE,
        count=packed.needed_rows if count is None else count,
    )


def _product_on_cpu(x: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """Multiplies [M, I] by [I, O] in blocks of I, if the rows are few.

    XLA leaves products to Eigen, which copies the weights into its own layout. For few rows that
    copy is much of the work. With short blocks the copy takes a third less time, most likely
    because it stays in the core's cache. docs/measurements.md has the figures.
    """
    rows, inputs = x.shape
    outputs = weight.shape[1]
    block = next((size for size in _BLOCKS if inputs % size == 0), inputs)
    # With shorter types than float32, the sum of each block would be rounded.
    if rows > _FEW_ROWS or block == inputs or weight.dtype != tf.float32:
        return tf.matmul(x, weight)
    parts = tf.matmul(
        tf.transpose(tf.reshape(x, [rows, -1, block]), [1, 0, 2]),
        tf.reshape(weight, [-1, block, outputs]),
    )  # [I / block, M, O]
    # Their sum is a product, too: XLA's own reductions are slow over any axis but the last.
    parts = tf.reshape(parts, [-1, rows * outputs])
    total = tf.matmul(tf.ones([1, parts.shape[0]]), parts)
    return tf.reshape(total, [rows, outputs])


def embedding(weights: Weights, name: str, ids: tf.Tensor) -> tf.Tensor:
    """Looks up rows of embeddings.

    Args:
        weights: Have embeddings [V, E] of this name.
        name: Name of the weight.
        ids: [...] int32.

    Returns:
        [..., E].
    """
    packed = weights.packed_matrix(name)
    if packed is None:
        return tf.gather(weights[name], ids)
    flat = tf.reshape(ids, [-1])
    rows = kernels.look_up(flat, packed.panels, packed.shape, scales=packed.scales)
    return tf.reshape(rows, [*ids.shape, rows.shape[1]])


def positions_after(pad_token_id: int, token_ids: tf.Tensor) -> tf.Tensor:
    """Counts positions from the one after the padding token's id; padding itself has that id.

    Args:
        pad_token_id: The padding token.
        token_ids: [R, P] int32.

    Returns:
        [R, P] int32.
    """
    counted = tf.cast(token_ids != pad_token_id, tf.int32)
    return tf.cumsum(counted, axis=1) * counted + pad_token_id


def output_logits(weights: Weights, name: str, hidden: tf.Tensor) -> tf.Tensor:
    """Multiplies hidden states [..., E] by output embeddings [V, E]: [..., V] float32.

    This is one product of two matrices, which reads the embeddings in their stored order. Types
    other than float32 need `jit_compile`: only XLA supports them.
    """
    rows = tf.reshape(hidden, [-1, hidden.shape[-1]])
    embeddings, packed = weights[name], weights.packed_matrix(name)
    if packed is not None:
        product = _packed_product(packed, rows)
    elif embeddings.dtype == tf.float32:
        product = tf.matmul(rows, embeddings, transpose_b=True)
    else:
        # Sums stay float32 and are never rounded to the shorter type; only XLA offers this.
        last_axes = xla_data_pb2.DotDimensionNumbers(
            lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[1]
        )
        product = xla.dot_general(rows, embeddings, last_axes, preferred_element_type=tf.float32)
    return tf.reshape(product, [*hidden.shape[:-1], product.shape[1]])


def attention(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    visible: tf.Tensor,
    scale: float,
    *,
    bias: tf.Tensor | None = None,
    cap: float = 0.0,
) -> tf.Tensor:
    """Scaled dot-product attention (Vaswani et al. 2017); its softmax is computed in float32.

    Each head of keys and values serves G heads of queries, which follow each other (Ainslie et al.
    2023).

    Args:
        query: [R, H * G, P, D].
        key: [R, H, T, D].
        value: [R, H, T, D].
        visible: Boolean, broadcastable to [R, H * G, P, T]: the keys that a query sees; at least
            one.
        scale: Factor of the scores.
        bias: Added to the scores, broadcastable to [R, H * G, P, T] float32.
        cap: Scaled scores are bounded to less than this by a hyperbolic tangent; 0 for no bound.

    Returns:
        [R, H * G, P, D]. Invisible keys weigh exactly zero, so padding never changes an answer.
    """
    rows, query_heads, queries, size = query.shape
    heads, length = key.shape[1:3]
    # The queries of a group multiply the same keys and values: one product for all of them.
    grouped = [rows, heads, query_heads // heads * queries]
    scores = tf.matmul(tf.reshape(query, [*grouped, size]), key, transpose_b=True)
    scores = tf.reshape(scores, [rows, query_heads, queries, length])
    scores = tf.cast(scores, tf.float32) * scale
    if cap:
        scores = cap * tf.tanh(scores / cap)
    if bias is not None:
        scores += bias
    scores = tf.where(visible, scores, scores.dtype.min)
    shares = tf.cast(tf.nn.softmax(scores), value.dtype)
    mixed = tf.matmul(tf.reshape(shares, [*grouped, length]), value)
    return tf.reshape(mixed, query.shape)


def split_heads(x: tf.Tensor, heads: int) -> tf.Tensor:
    """Splits [R, P, E] into heads, [R, H, P, D]."""
    rows, length, width = x.shape
    return tf.transpose(tf.reshape(x, [rows, length, heads, width // heads]), [0, 2, 1, 3])


def merge_heads(x: tf.Tensor) -> tf.Tensor:
    """Merges heads [R, H, P, D] into [R, P, E]."""
    rows, heads, length, size = x.shape
    return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [rows, length, heads * size])

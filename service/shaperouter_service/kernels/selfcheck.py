"""A self-check that compares the kernels with a reference before they are used."""

import functools
import math

import numpy as np
import tensorflow as tf

from shaperouter_service.kernels.custom_calls import (
    Activation,
    attend,
    attend_tokens,
    linear,
    look_up,
    norm,
    softmax_sums,
)
from shaperouter_service.kernels.library import KernelsUnavailableError, register
from shaperouter_service.kernels.panels import (
    GROUP,
    PANEL_COLUMNS,
    QUAD,
    SCALED,
    Panels,
    pack,
)

# TensorFlow has no public name for it.
_INT4 = tf.as_dtype("int4")
# Inputs of a small matrix of each type: no multiple of any block size of the kernels, except where
# tiles take multiples only.
_INPUTS = {tf.float32: 197, tf.bfloat16: 192, tf.int8: 192, _INT4: 197}
# Columns, likewise.
_COLUMNS = 43
_ROWS = (1, 5, 37)
# R, H, Q, T, D of a small attention, likewise. There are enough queries for keys to be transposed.
_ATTENTION = (2, 3, 13, 41, 19)
# Layers of a stack, and the index of the layer that is used.
_LAYERS, _LAYER = 3, 1
_ENDS = (23, 41)
# Heads of the attention of a text, and distances with a bias on each side.
_HEADS, _REACH = 3, 4
_EPSILON = 1e-3


@functools.cache
def require() -> str:
    """Loads the kernels and compares them with a reference, once per process.

    Returns:
        The instruction set that they use on this processor.

    Raises:
        KernelsUnavailableError: The kernels can't be used; the message says why.
    """
    name = register()
    rng = np.random.default_rng(0)
    inputs = max(_INPUTS.values())
    matrix = rng.standard_normal((inputs, _COLUMNS), np.float32)
    bias = rng.standard_normal(_COLUMNS, np.float32)
    x = whole_bytes(rng, max(_ROWS), inputs)
    ids = np.arange(_COLUMNS, dtype=np.int32)[::-3]
    panels = [
        pack(matrix[:used], np.dtype(dtype.as_numpy_dtype)) for dtype, used in _INPUTS.items()
    ]
    rows, heads, queries, length, size = _ATTENTION
    query = rng.standard_normal((rows, heads, queries, size), np.float32)
    keys, values = rng.standard_normal((2, rows, _LAYERS, heads, length, size), np.float32)
    scores_bias = rng.standard_normal((rows, heads, queries, length), np.float32)
    projected = rng.standard_normal((length, 3 * _HEADS * size), np.float32)
    distances = rng.standard_normal((_HEADS, 2 * _REACH + 1), np.float32)
    try:
        found = _computed(x, bias, ids, panels)
        attended = _attended(query, keys, values, scores_bias)
        of_text, normed, rms, sums = _of_text(projected, distances)
    except tf.errors.OpError as error:
        raise KernelsUnavailableError(f"XLA can't run them: {error.message}") from error
    for (dtype, used), of_type, results in zip(_INPUTS.items(), panels, found, strict=True):
        held = unpack(of_type)
        expected = [
            activation(x[:rows, :used] @ held + bias, kind) for rows, kind in _products(dtype)
        ]
        # Embeddings have eight bits or more.
        if dtype != _INT4:
            expected.append(held.T[ids])
        for result, reference in zip(results, expected, strict=True):
            if not _is_close(result, reference):
                raise KernelsUnavailableError(
                    f"a product of {dtype.name} weights, {list(reference.shape)}, differs from "
                    "the reference"
                )
    expected_attention = attention(
        query, keys[:, _LAYER], values[:, _LAYER], np.asarray(_ENDS), scores_bias
    )
    if not _is_close(attended, expected_attention):
        raise KernelsUnavailableError(
            f"attention of {list(_ATTENTION)} numbers differs from the reference"
        )
    if not _is_close(of_text, text_attention(projected, _HEADS, 1.0, distances)):
        raise KernelsUnavailableError("attention of texts differs from the reference")
    if not _is_close(normed, _norm(2 * of_text)):
        raise KernelsUnavailableError("a layer norm differs from the reference")
    if not _is_close(rms, of_text / np.sqrt((of_text**2).mean(-1, keepdims=True) + _EPSILON)):
        raise KernelsUnavailableError("an RMS norm differs from the reference")
    if not _is_close(sums, _softmax_sums(of_text)):
        raise KernelsUnavailableError("a softmax differs from the reference")
    return name


def unpack(panels: Panels) -> np.ndarray:
    """Returns the packed matrix as [I, O] float32."""
    inputs, columns = panels.shape
    if panels.values.dtype == np.uint8:
        return _unpack_blocks(panels.values)[:inputs, :columns]
    values = panels.values.astype(np.float32)
    by_input = values.reshape(*values.shape[:3], -1).transpose(1, 3, 0, 2)
    matrix: np.ndarray = by_input.reshape(-1, len(values) * PANEL_COLUMNS)[:inputs, :columns]
    return matrix if panels.scales is None else matrix * panels.scales


def _unpack_blocks(values: np.ndarray) -> np.ndarray:
    """Returns weights of four bits with the columns and inputs that fill them up."""
    panels, blocks = values.shape[:2]
    lines = values[:, :, 1:].reshape(panels, blocks, -1, PANEL_COLUMNS, QUAD)
    quads = np.stack([lines & 15, lines >> 4], axis=3)  # [panels, blocks, lines, 2, columns, QUAD]
    numbers = quads.transpose(1, 2, 3, 5, 0, 4).reshape(-1, SCALED, panels * PANEL_COLUMNS)
    halves = np.ascontiguousarray(values[:, :, 0]).view(np.uint16).astype(np.uint32)
    scales = (halves << 16).view(np.float32).reshape(panels, blocks, -1, PANEL_COLUMNS)
    of_groups = scales.transpose(1, 2, 0, 3).reshape(-1, 1, panels * PANEL_COLUMNS)
    matrix: np.ndarray = (numbers.astype(np.float32) - 8) * of_groups
    return matrix.reshape(-1, panels * PANEL_COLUMNS)


def whole_bytes(rng: np.random.Generator, rows: int, inputs: int) -> np.ndarray:
    """Rows [M, I] that rounding to int8 leaves as they are."""
    x = rng.integers(-127, 128, (rows, inputs)).astype(np.float32)
    # The largest number of each group, which makes the factor of the group 1 / 64.
    x[:, ::GROUP] = 127
    return x / 64


def activation(sums: np.ndarray, kind: Activation) -> np.ndarray:
    """Computes an activation by its definition."""
    x = sums.astype(np.float64)
    share: np.ndarray
    with np.errstate(over="ignore"):
        match kind:
            case Activation.NONE:
                share = np.ones_like(x)
            case Activation.RELU:
                share = np.heaviside(x, 0)
            case Activation.GELU:
                share = np.vectorize(math.erfc)(-x / math.sqrt(2)) / 2
            case Activation.GELU_TANH:
                share = 1 / (1 + np.exp(-math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)))
            case Activation.SILU:
                share = 1 / (1 + np.exp(-x))
    return x * share


def attention(
    query: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    ends: np.ndarray,
    bias: np.ndarray | float = 0.0,
) -> np.ndarray:
    """Computes causal attention by its definition, with unscaled scores; see `attend`."""
    queries, positions = query.shape[2], keys.shape[2]
    own_ends = ends[:, np.newaxis] - np.arange(queries)[::-1]  # [R, Q]
    visible = np.arange(positions) < own_ends[..., np.newaxis]
    scores = np.where(visible[:, np.newaxis], query @ keys.swapaxes(2, 3) + bias, -np.inf)
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    result: np.ndarray = shares / shares.sum(axis=-1, keepdims=True) @ values
    return result


def text_attention(
    projected: np.ndarray, heads: int, scale: float, biases: np.ndarray | None = None
) -> np.ndarray:
    """Computes attention of one text's tokens, [N, 3 E], by its definition; see `attend_tokens`."""
    count, width = projected.shape[0], projected.shape[1] // 3
    query, key, value = (
        part.reshape(count, heads, -1).swapaxes(0, 1)
        for part in np.split(projected.astype(np.float64), 3, axis=1)
    )
    scores = scale * query @ key.swapaxes(1, 2)
    if biases is not None:
        position, reach = np.arange(count), biases.shape[1] // 2
        ahead = np.clip(position - position[:, np.newaxis], -reach, reach)
        scores += biases[:, ahead + reach]
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed: np.ndarray = shares / shares.sum(axis=-1, keepdims=True) @ value
    return mixed.swapaxes(0, 1).reshape(count, width)


def _norm(x: np.ndarray) -> np.ndarray:
    """Computes a layer norm by its definition, with a gain of 2 and a bias of 1."""
    off = x - x.mean(axis=-1, keepdims=True)
    normed: np.ndarray = 2 * off / np.sqrt((off**2).mean(axis=-1, keepdims=True) + _EPSILON) + 1
    return normed


def _softmax_sums(x: np.ndarray) -> np.ndarray:
    """Computes largest numbers, logarithms of sums and entropies; see `softmax_sums`."""
    largest = x.max(axis=-1)
    off = x - largest[:, np.newaxis]
    log_sum = np.log(np.exp(off).sum(axis=-1))
    logprobs = off - log_sum[:, np.newaxis]
    return np.stack([largest, log_sum, -(np.exp(logprobs) * logprobs).sum(axis=-1)], axis=-1)


def _is_close(result: np.ndarray, reference: np.ndarray) -> bool:
    return np.allclose(result, reference, rtol=1e-5, atol=1e-5)


def _attended(
    query: np.ndarray, keys: np.ndarray, values: np.ndarray, bias: np.ndarray
) -> np.ndarray:
    def compute(query: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        layer, ends = tf.constant(_LAYER), tf.constant(_ENDS)
        return attend(query, keys, values, ends, 1.0, layer=layer, causal=True, bias=bias)

    graph = tf.function(compute, jit_compile=True, autograph=False)
    result: np.ndarray = graph(*map(tf.constant, (query, keys, values, bias))).numpy()
    return result


def _of_text(projected: np.ndarray, biases: np.ndarray) -> list[np.ndarray]:
    """Attends to all tokens of a text, normalizes the result, and sums up its softmax."""

    def compute(projected: tf.Tensor, biases: tf.Tensor) -> list[tf.Tensor]:
        count, width = projected.shape[0], projected.shape[1] // 3
        starts, positions = tf.constant([0, count]), tf.range(count)
        context = attend_tokens(
            projected, starts, 1.0, heads=_HEADS, positions=positions, biases=biases
        )
        ones = tf.ones([width])
        normed = norm(context, 2 * ones, ones, _EPSILON, added=context)
        rms = norm(context, None, None, _EPSILON, centered=False)
        return [context, normed, rms, softmax_sums(context)]

    graph = tf.function(compute, jit_compile=True, autograph=False)
    return [each.numpy() for each in graph(tf.constant(projected), tf.constant(biases))]


def _products(dtype: tf.DType) -> list[tuple[int, Activation]]:
    """Numbers of rows and activations to check a type with: few, since a start waits for them."""
    *few, most = _ROWS
    # All types together have each activation.
    start = list(_INPUTS).index(dtype) * len(few)
    kinds = tuple(Activation)
    activated = [(rows, kinds[(start + place) % len(kinds)]) for place, rows in enumerate(few)]
    # Some activations make half of the sums 0.
    return [*activated, (most, Activation.NONE)]


def _computed(
    x: np.ndarray, bias: np.ndarray, ids: np.ndarray, panels: list[Panels]
) -> list[list[np.ndarray]]:
    """Computes products of several numbers of rows and a look-up per type."""

    def compute(x: tf.Tensor, bias: tf.Tensor, ids: tf.Tensor) -> list[list[tf.Tensor]]:
        layer = tf.constant(_LAYER)
        results = []
        for dtype, one in zip(_INPUTS, panels, strict=True):
            values = tf.constant(one.values)
            scales = None if one.scales is None else tf.constant(one.scales)
            others = [tf.zeros_like(values)] * _LAYERS
            stack = tf.stack([*others[:_LAYER], values, *others[_LAYER + 1 :]])
            of_type = [
                linear(
                    x[:rows, : one.shape[0]],
                    stack,
                    one.shape,
                    layer=layer,
                    scales=scales,
                    bias=bias,
                    activation=kind,
                )
                for rows, kind in _products(dtype)
            ]
            if dtype != _INT4:
                of_type.append(look_up(ids, values, one.shape, scales=scales))
            results.append(of_type)
        return results

    graph = tf.function(compute, jit_compile=True, autograph=False)
    computed = graph(tf.constant(x), tf.constant(bias), tf.constant(ids))
    return [[tensor.numpy() for tensor in of_type] for of_type in computed]

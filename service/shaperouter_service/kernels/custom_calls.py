"""TensorFlow operations that call the kernels from graphs that XLA compiles.

Each operation is a StableHLO module with one custom call. A lowered graph refers to the kernel by
name, so it needs the library only where it is compiled and run.
"""

import enum
import math
from collections.abc import Sequence

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

from shaperouter_service.kernels.library import VERSION
from shaperouter_service.kernels.panels import BLOCK, GROUP, PAIR, QUAD, SCALED

# Version of the XlaCallModule operation, which defines its arguments and attributes.
_CALL_MODULE_VERSION = 9

# Tables of `embed`; the same as kTables in native/rows.h.
_TABLES = 3

# Numbers that the scratch memory of `truncate` is rounded up to; the same as kScratchUnit in
# native/choice.h.
_SCRATCH_UNIT = 16

# Types of elements as StableHLO names them.
_TYPES = {
    tf.bool: "i1",
    tf.bfloat16: "bf16",
    tf.float16: "f16",
    tf.float32: "f32",
    tf.float64: "f64",
    tf.complex64: "complex<f32>",
    tf.complex128: "complex<f64>",
    tf.int8: "i8",
    tf.int16: "i16",
    tf.int32: "i32",
    tf.int64: "i64",
    tf.uint8: "ui8",
    tf.uint16: "ui16",
    tf.uint32: "ui32",
    tf.uint64: "ui64",
}


class Activation(enum.IntEnum):
    """Function applied to the sums of a product; the same as Activation in native/product.h."""

    NONE = 0
    RELU = 1
    GELU = 2
    GELU_TANH = 3
    SILU = 4


def linear(
    x: tf.Tensor,
    panels: tf.Tensor,
    shape: tuple[int, int],
    *,
    layer: tf.Tensor | None = None,
    scales: tf.Tensor | None = None,
    bias: tf.Tensor | None = None,
    activation: Activation = Activation.NONE,
    count: tf.Tensor | None = None,
) -> tf.Tensor:
    """Multiplies rows by a packed matrix.

    With bfloat16 weights, rows are rounded to bfloat16, too; with fewer bits, to int8.

    Args:
        x: [M, I] float32.
        panels: A packed matrix, or a stack with one matrix per layer; see `Panels`.
        shape: [I, O], the shape of one matrix.
        layer: int32, the index of the matrix in the stack; None if `panels` is one matrix.
        scales: [O] float32, factors of the columns.
        bias: [O] float32, added to the scaled sums.
        activation: Applied last.
        count: [1] int32, the number of rows to compute, from the first; None for all.

    Returns:
        [M, O] float32. A row's result does not depend on the other rows; those that are not
        computed are undefined.
    """
    rows, (inputs, columns) = x.shape[0], shape
    # The second result is memory that the kernel works in.
    work = tf.TensorSpec([rows, _row_size(panels.dtype, inputs)])
    out = [tf.TensorSpec([rows, columns]), work]
    if layer is None:
        panels, layer = panels[tf.newaxis], tf.constant(0)
    operands = [x, panels, layer, _or_none(scales), _or_none(bias), _count_or_none(count)]
    return _call("shaperouter_linear", operands, out, f"activation = {activation:d} : i32")


def look_up(
    ids: tf.Tensor,
    panels: tf.Tensor,
    shape: tuple[int, int],
    *,
    scales: tf.Tensor | None = None,
) -> tf.Tensor:
    """Looks up columns of a packed matrix.

    Args:
        ids: [M] int32, indices of the columns.
        panels: One packed matrix; see `Panels`.
        shape: [I, O], the shape of the matrix.
        scales: [O] float32, factors of the columns.

    Returns:
        [M, I] float32.
    """
    out = [tf.TensorSpec([ids.shape[0], shape[0]])]
    return _call("shaperouter_look_up", [ids, panels[tf.newaxis], _or_none(scales)], out)


def attend(
    query: tf.Tensor,
    keys: tf.Tensor,
    values: tf.Tensor,
    ends: tf.Tensor,
    scale: float,
    *,
    layer: tf.Tensor | None = None,
    starts: tf.Tensor | None = None,
    counts: tf.Tensor | None = None,
    causal: bool = False,
    visible: tf.Tensor | None = None,
    bias: tf.Tensor | None = None,
    cap: float = 0.0,
) -> tf.Tensor:
    """Attends to the used part of one layer's cache; the unused part costs nothing.

    Each head of keys and values serves G heads of queries, which follow each other.

    Args:
        query: [R, H * G, Q, D] float32.
        keys: [R, L, H, T, D] float32, or uint16 with the bits of bfloat16 numbers; [R, H, T, D]
            without `layer`.
        values: As keys.
        ends: [R] int32, the first position of each row that is not read.
        scale: Factor of the scores.
        layer: int32, the index of the layer in the caches.
        starts: [R] int32, the first position of each row that is read; the first of all by default.
        counts: [R] int32, the number of each head's queries that are needed, from the first; all by
            default. The others see nothing, and cost nothing.
        causal: Starts and ends are those of the last queries; each earlier query has both one
            position before the next query.
        visible: [R, Q, T] bool, the positions from the start to the end that a query sees; all by
            default.
        bias: [R, H * G, Q, T] float32, added to the scores.
        cap: Scaled scores are bounded to less than this by a hyperbolic tangent; 0 for no bound.

    Returns:
        [R, H * G, Q, D] float32; zeros for a query that sees nothing. Neither T nor other rows and
        queries change a result.
    """
    if layer is None:
        keys, values, layer = keys[:, tf.newaxis], values[:, tf.newaxis], tf.constant(0)
    seen = tf.zeros([0], tf.bool) if visible is None else visible
    # The second result is memory that the kernel works in.
    shares = tf.TensorSpec([*query.shape[:3], keys.shape[3]])
    out = [tf.TensorSpec(query.shape), shares]
    bounds = [_count_or_none(starts), ends, _count_or_none(counts)]
    operands = [query, keys, values, layer, *bounds, seen, _or_none(bias)]
    attributes = f"cap = {cap:.9e} : f32, causal = {str(causal).lower()}, scale = {scale:.9e} : f32"
    return _call("shaperouter_attend", operands, out, attributes)


def attend_tokens(
    projected: tf.Tensor,
    starts: tf.Tensor,
    scale: float,
    *,
    heads: int,
    positions: tf.Tensor | None = None,
    biases: tf.Tensor | None = None,
) -> tf.Tensor:
    """Attends to all tokens of each text; texts follow each other without padding.

    Args:
        projected: [M, 3 E] float32, queries, keys and values of each token, all heads of each.
        starts: [R + 1] int32, the first token of each text, and the end of the last one.
        scale: Factor of the scores.
        heads: H.
        positions: [M] int32, each token's position in its text; only with biases.
        biases: [H, 2 N + 1] float32, added to the scaled scores by the distance of the key ahead of
            the query, from -N to N, to which farther keys are counted.

    Returns:
        [M, E] float32; undefined beyond the end of the last text. The other texts do not change a
        result.
    """
    tokens, width = projected.shape[0], projected.shape[1] // 3
    # The second result is memory that the kernel works in.
    out = [tf.TensorSpec([tokens, width]), tf.TensorSpec([2, heads, tokens])]
    if positions is None or biases is None:
        positions, biases = tf.zeros([0], tf.int32), tf.zeros([0, 1])
    attributes = f"heads = {heads} : i32, scale = {scale:.9e} : f32"
    return _call(
        "shaperouter_attend_tokens", [projected, starts, positions, biases], out, attributes
    )


def norm(
    x: tf.Tensor,
    gain: tf.Tensor | None,
    bias: tf.Tensor | None,
    epsilon: float,
    *,
    added: tf.Tensor | None = None,
    centered: bool = True,
    count: tf.Tensor | None = None,
) -> tf.Tensor:
    """Normalizes rows, or the rows of a sum.

    Args:
        x: [M, E] float32.
        gain: [E] float32, factors of the normalized columns; None for 1.
        bias: [E] float32, added to them; None for 0.
        epsilon: Added to variances, or to mean squares.
        added: [M, E] float32, added to `x` before that.
        centered: Whether to compute a layer norm (Ba et al. 2016), or else an RMS norm (Zhang and
            Sennrich 2019), which subtracts no mean.
        count: [1] int32, the number of rows to compute, from the first; None for all.

    Returns:
        [M, E] float32; rows that are not computed are undefined.
    """
    if added is None:
        added = tf.zeros([0, x.shape[1]])
    operands = [x, added, _or_none(gain), _or_none(bias), _count_or_none(count)]
    attributes = f"centered = {str(centered).lower()}, epsilon = {epsilon:.9e} : f32"
    return _call("shaperouter_norm", operands, [tf.TensorSpec(x.shape)], attributes)


def softmax_sums(x: tf.Tensor) -> tf.Tensor:
    """Sums up what the softmax of each row is computed from.

    Args:
        x: [M, V] float32.

    Returns:
        [M, 3] float32: the largest number of each row, the logarithm of the sum of the powers of e
        by the differences from it, and the entropy of the softmax.
    """
    return _call("shaperouter_softmax_sums", [x], [tf.TensorSpec([x.shape[0], 3])])


def truncate(
    scores: tf.Tensor,
    applies: tf.Tensor,
    *,
    temperature: tf.Tensor,
    top_k: tf.Tensor,
    top_p: tf.Tensor,
    min_p: tf.Tensor,
    typical_p: tf.Tensor,
    epsilon_cutoff: tf.Tensor,
    eta_cutoff: tf.Tensor,
    min_kept: tf.Tensor,
) -> tf.Tensor:
    """Applies temperature and truncations; see `decoding.warpers`.

    Args:
        scores: [M, V] float32.
        applies: [M] bool; other rows stay as they are.
        temperature: [M] float32, and so are all others but `top_k` and `min_kept`.
        top_k: [M] int32.
        top_p: See above.
        min_p: See above.
        typical_p: See above.
        epsilon_cutoff: See above.
        eta_cutoff: See above.
        min_kept: [M] int32, minimum number of tokens that a truncation leaves.

    Returns:
        [M, V] float32, minus infinity where truncated.
    """
    rows, width = scores.shape
    # A truncation orders the tokens in memory of its own.
    work = tf.TensorSpec([rows * 2 * math.ceil(width / _SCRATCH_UNIT) * _SCRATCH_UNIT])
    operands = [
        *(scores, applies, temperature, top_k, top_p, min_p, typical_p),
        *(epsilon_cutoff, eta_cutoff, min_kept),
    ]
    return _call("shaperouter_truncate", operands, [tf.TensorSpec(scores.shape), work])


def perturb(
    scores: tf.Tensor, applies: tf.Tensor, seeds: tf.Tensor, positions: tf.Tensor
) -> tf.Tensor:
    """Adds Gumbel noise; see `decoding.randomness`.

    Args:
        scores: [M, V] float32.
        applies: [M] bool; other rows stay as they are.
        seeds: [M, 2] uint32.
        positions: [M] int32.

    Returns:
        [M, V] float32.
    """
    operands = [scores, applies, seeds, positions]
    return _call("shaperouter_perturb", operands, [tf.TensorSpec(scores.shape)])


def embed(
    tables: Sequence[tf.Tensor],
    ids: Sequence[tf.Tensor],
    gain: tf.Tensor,
    bias: tf.Tensor,
    epsilon: float,
    *,
    count: tf.Tensor | None = None,
) -> tf.Tensor:
    """Looks up a row of each table, adds the rows up and normalizes the sums; see `norm`.

    Args:
        tables: One to three of [N, E] float32.
        ids: A row of each table for each token, [M] int32 each; clamped to the table.
        gain: [E] float32.
        bias: [E] float32.
        epsilon: Added to variances.
        count: [1] int32, the number of tokens to compute, from the first; None for all.

    Returns:
        [M, E] float32; rows that are not computed are undefined.
    """
    width = tables[0].shape[1]
    missing = _TABLES - len(tables)
    all_tables = [*tables, *[tf.zeros([0, width])] * missing]
    all_ids = [*ids, *[tf.zeros([0], tf.int32)] * missing]
    pairs = [each for pair in zip(all_tables, all_ids, strict=True) for each in pair]
    out = [tf.TensorSpec([ids[0].shape[0], width])]
    operands = [*pairs, gain, bias, _count_or_none(count)]
    return _call("shaperouter_embed", operands, out, f"epsilon = {epsilon:.9e} : f32")


def sum_tokens(x: tf.Tensor, starts: tf.Tensor) -> tf.Tensor:
    """Adds up the tokens of each text in their order.

    Args:
        x: [M, E] float32.
        starts: [R + 1] int32; see `attend_tokens`.

    Returns:
        [R, E] float32; zeros for a text without tokens.
    """
    out = [tf.TensorSpec([starts.shape[0] - 1, x.shape[1]])]
    return _call("shaperouter_sum_tokens", [x, starts], out)


def _row_size(dtype: tf.DType, inputs: int) -> int:
    """Number of 4-byte words of an arranged row; the same as RowSize in native/product.h."""
    groups = math.ceil(inputs / GROUP)
    if dtype == tf.bfloat16:
        return math.ceil(inputs / PAIR) * PAIR
    if dtype == tf.int8:
        return math.ceil(inputs / QUAD) + 2 * groups
    if dtype == tf.uint8:
        return math.ceil(inputs / BLOCK) * (BLOCK // QUAD + BLOCK // SCALED) + groups
    return inputs


def _or_none(values: tf.Tensor | None) -> tf.Tensor:
    return tf.zeros([0]) if values is None else values


def _count_or_none(count: tf.Tensor | None) -> tf.Tensor:
    return tf.zeros([0], tf.int32) if count is None else count


def _call(
    target: str,
    operands: Sequence[tf.Tensor],
    results: Sequence[tf.TensorSpec],
    attributes: str = "",
) -> tf.Tensor:
    """Calls a kernel and returns its first result; the others are memory that it works in."""
    (first,) = native_call(target, operands, results, attributes, kept=1)
    return first


def native_call(
    target: str,
    operands: Sequence[tf.Tensor],
    results: Sequence[tf.TensorSpec],
    attributes: str = "",
    *,
    kept: int,
    platform: str = "CPU",
) -> list[tf.Tensor]:
    """Calls a function of the native library from a graph.

    Args:
        target: Its name, without the version.
        operands: Its operands.
        results: Shapes and types of its results.
        attributes: Its attributes, in StableHLO.
        kept: How many of the results to return, from the first.
        platform: The platform that the graph runs on, by its name in XLA.
    """
    arguments = ", ".join(f"%{index}: {_type(x)}" for index, x in enumerate(operands))
    names = ", ".join(f"%{index}" for index in range(len(operands)))
    operand_types = ", ".join(_type(x) for x in operands)
    result_types = ", ".join(_type(spec) for spec in results)
    count = f":{len(results)}" if len(results) > 1 else ""
    returned = ", ".join(f"%out#{index}" if count else "%out" for index in range(kept))
    returned_types = ", ".join(_type(spec) for spec in results[:kept])
    module = (
        f"module {{ func.func public @main({arguments}) -> ({returned_types}) {{\n"
        f"%out{count} = stablehlo.custom_call @{target}_{VERSION}({names}) {{\n"
        f"api_version = 4 : i32, backend_config = {{{attributes}}},\n"
        f"operand_layouts = [{_layouts(operands)}], result_layouts = [{_layouts(results)}]\n"
        f"}} : ({operand_types}) -> ({result_types})\n"
        f"return {returned} : {returned_types} }} }}"
    )
    returns: list[tf.Tensor] = xla.call_module(
        operands,
        version=_CALL_MODULE_VERSION,
        module=module,
        Tout=[spec.dtype for spec in results[:kept]],
        Sout=[spec.shape for spec in results[:kept]],
        platforms=[platform],
    )
    return returns


def _type(tensor: tf.Tensor | tf.TensorSpec) -> str:
    return f"tensor<{'x'.join([*map(str, tensor.shape), _TYPES[tensor.dtype]])}>"


def _layouts(tensors: Sequence[tf.Tensor | tf.TensorSpec]) -> str:
    """Row-major layouts of the tensors."""
    ranks = [tensor.shape.rank for tensor in tensors]
    return ", ".join(f"dense<{[*reversed(range(rank))]}> : tensor<{rank}xindex>" for rank in ranks)

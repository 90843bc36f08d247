"""Attention over the caches of a batch, which model families call as `Attend`.

A request's cache has T positions. A token of the prompt takes one position, which all beams share;
a step takes B, one for the newest token of each hypothesis. Nothing in a cache ever moves: when
hypotheses are dropped and split, only their lineage changes, which is the mask of the positions
they see.

A cache holds stacks of layers, [R, L, H, T, D]: with the native kernels one stack with all layers,
which a graph loops over; without them one stack for each layer. The kernels attend to a layer of
the stack in place and read no unused position, so a long cover is as fast as a tight one.
"""

from typing import Any, TypeAlias

import tensorflow as tf

from shaperouter_service import kernels
from shaperouter_service.decoding.caches import narrowed, widened
from shaperouter_service.decoding.step_places import StepPlaces
from shaperouter_service.decoding.tf_internals import dynamic_update_slice
from shaperouter_service.models.layers import attention

Layer: TypeAlias = int | tf.Tensor


class LayerCaches:
    """Keys and values of all layers.

    Attributes:
        layer: Index of the layer that runs now.
        caches: Stacks of keys, and then as many stacks of values: [R, L, H, T, D].
    """

    def __init__(self, caches: list[tf.Tensor]) -> None:
        """Wraps caches without copying them."""
        self.layer: Layer = 0
        self.caches: Any = list(caches)

    @property
    def length(self) -> int:
        """T."""
        length: int = self.caches[0].shape[3]
        return length

    @property
    def layer_in_stack(self) -> Layer:
        """Index of the current layer in its stack."""
        return self.layer if self._stacks == 1 else 0

    @property
    def stacks(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Stacks that hold the keys and the values of the current layer."""
        keys, values = self._indices
        return self.caches[keys], self.caches[values]

    def read(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the current layer's keys and values, [R, H, T, D]; copies from a large stack."""
        keys, values = self.stacks
        at = self.layer_in_stack
        return widened(keys[:, at]), widened(values[:, at])

    def write_piece(self, start: Layer, key: tf.Tensor, value: tf.Tensor) -> None:
        """Puts keys and values [R, H, P, D] at P positions from `start`."""
        for index, new in zip(self._indices, (key, value), strict=True):
            at = tf.stack([0, self.layer_in_stack, 0, start, 0])
            stack = self.caches[index]
            piece = narrowed(new, stack.dtype)[:, tf.newaxis]
            self._put(index, dynamic_update_slice(stack, piece, at))

    def write_at(self, positions: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> None:
        """Puts keys and values [R, H, B, D] at positions [R, B]."""
        rows, heads, beams, _ = key.shape
        row, head, _ = tf.meshgrid(
            tf.range(rows), tf.range(heads), tf.range(beams), indexing="ij"
        )  # [R, H, B]
        layer = tf.fill(row.shape, self.layer_in_stack)
        position = tf.broadcast_to(positions[:, tf.newaxis], row.shape)
        # One scatter: XLA updates it in place, and compiles it faster than a write for each row.
        at = tf.stack([row, layer, head, position], axis=-1)  # [R, H, B, 4]
        for index, new in zip(self._indices, (key, value), strict=True):
            stack = self.caches[index]
            self._put(index, tf.tensor_scatter_nd_update(stack, at, narrowed(new, stack.dtype)))

    @property
    def _stacks(self) -> int:
        return len(self.caches) // 2

    @property
    def _indices(self) -> tuple[int, int]:
        keys = 0 if self._stacks == 1 else self.layer
        return keys, self._stacks + keys

    def _put(self, index: int, stack: tf.Tensor) -> None:
        self.caches = [*self.caches[:index], stack, *self.caches[index + 1 :]]


class SourceCaches(LayerCaches):
    """Writes the keys and values of sources into the caches; a `KeepSource`."""

    def __call__(self, key: tf.Tensor, value: tf.Tensor) -> None:
        """See `KeepSource`."""
        self.write_piece(0, key, value)


class SourceAttention:
    """Attention over the encoder's output for each row's source, which does not change."""

    def __init__(
        self, caches: list[tf.Tensor], lengths: tf.Tensor, *, is_native: bool = False
    ) -> None:
        """Wraps the caches of sources.

        Args:
            caches: See `LayerCaches`; T is S.
            lengths: [R] int32, number of positions to attend to, from the first.
            is_native: Whether the native kernels compute attention.
        """
        self._caches = LayerCaches(caches)
        self._lengths = lengths
        self._is_native = is_native
        visible = tf.range(self._caches.length) < lengths[:, tf.newaxis]
        self._visible = visible[:, tf.newaxis, tf.newaxis]  # [R, 1, 1, S]

    def __call__(self, layer: Layer, query: tf.Tensor, scale: float) -> tf.Tensor:
        """See `AttendWithSource.to_source`."""
        caches = self._caches
        caches.layer = layer
        if self._is_native:
            keys, values = caches.stacks
            return kernels.attend(
                query, keys, values, self._lengths, scale, layer=caches.layer_in_stack
            )
        return attention(query, *caches.read(), self._visible, scale)


class _CacheAttention(LayerCaches):
    """Code that attention of steps and of prompts share."""

    def __init__(
        self, caches: list[tf.Tensor], source: SourceAttention | None, *, is_native: bool
    ) -> None:
        super().__init__(caches)
        self._source = source
        self._is_native = is_native

    def to_source(self, query: tf.Tensor, scale: float) -> tf.Tensor:
        """See `AttendWithSource`."""
        if self._source is None:
            raise TypeError("a decoder that attends to a source needs a source")
        return self._source(self.layer, query, scale)

    def _attend(self, query: tf.Tensor, ends: tf.Tensor, scale: float, **options: Any) -> tf.Tensor:
        keys, values = self.stacks
        layer = self.layer_in_stack
        return kernels.attend(query, keys, values, ends, scale, layer=layer, **options)


class StepAttention(_CacheAttention):
    """Attention of the newest token of each hypothesis, which is appended to its row's cache."""

    def __init__(
        self,
        caches: list[tf.Tensor],
        *,
        prompt_lengths: tf.Tensor,
        starts: tf.Tensor,
        visible: tf.Tensor,
        source: SourceAttention | None = None,
        is_native: bool = False,
    ) -> None:
        """Wraps the caches as they are before the step.

        Args:
            caches: See `LayerCaches`.
            prompt_lengths: [R] int32, number of positions, from the first, with one token each.
            starts: [R] int32, the first of the B positions of the newest tokens.
            visible: [R, B, T], positions that hypotheses see, including those of the newest tokens.
            source: Attention to the source, if there is one.
            is_native: Whether the native kernels compute attention.
        """
        super().__init__(caches, source, is_native=is_native)
        self._prompt_lengths = prompt_lengths
        beams = visible.shape[1]
        self._newest = starts[:, tf.newaxis] + tf.range(beams)  # [R, B]
        self._visible = visible
        self._ends = starts + beams

    @property
    def positions(self) -> tf.Tensor:
        """See `AttendWithSource`; [R, T]."""
        _, beams, length = self._visible.shape
        position, prompt_lengths = tf.range(length), self._prompt_lengths[:, tf.newaxis]
        steps = (position - prompt_lengths) // beams
        return tf.where(position < prompt_lengths, position, prompt_lengths + steps)

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
        """See `AttendInWindow`; P = B."""
        self.write_at(self._newest, key, value)
        visible = self._visible
        starts = None if window is None else self._starts(window)
        if self._is_native:
            # A single hypothesis sees every position.
            seen = None if visible.shape[1] == 1 else visible
            return self._attend(
                query, self._ends, scale, starts=starts, visible=seen, bias=bias, cap=cap
            )
        if starts is not None:
            positions = tf.range(visible.shape[2])
            visible &= (positions >= starts[:, tf.newaxis])[:, tf.newaxis]
        return attention(query, *self.read(), visible[:, tf.newaxis], scale, bias=bias, cap=cap)

    def _starts(self, window: tf.Tensor) -> tf.Tensor:
        """The first cache position [R] whose token the newest tokens see."""
        beams = self._visible.shape[1]
        prompt = self._prompt_lengths
        # Tokens after the prompt take B positions each.
        token = prompt + (self._newest[:, 0] - prompt) // beams - (window - 1)
        return tf.where(token <= prompt, token, prompt + (token - prompt) * beams)


class CheckAttention(_CacheAttention):
    """Attention of each row's newest token and of the tokens that are proposed after it.

    Tokens are in places: R is M for the layers, and P is 1. Only the native kernels compute it, for
    models without an encoder. A rejected proposal leaves keys and values behind, which are
    overwritten before any token sees them, as those of padding are.
    """

    def __init__(self, caches: list[tf.Tensor], places: StepPlaces, lengths: tf.Tensor) -> None:
        """Wraps the caches as they are before the step.

        Args:
            caches: See `LayerCaches`.
            places: The tokens.
            lengths: [R] int32, number of tokens of each row; the newest has the last position.
        """
        super().__init__(caches, None, is_native=True)
        self._places = places
        of_rows = places.of_rows  # [R, Q]
        self._of_rows = of_rows
        # What has no place is written nowhere: XLA drops updates beyond the cache.
        positions = tf.gather(lengths, places.rows) - 1 + places.offsets
        self._positions = tf.where(places.used, positions, self.length)  # [M]
        # The last query of a row would be its last possible proposal.
        self._ends = lengths + of_rows.shape[1] - 1
        self._counts = places.counts

    @property
    def positions(self) -> tf.Tensor:
        """See `AttendWithSource`; [1, T]."""
        return tf.range(self.length)[tf.newaxis]

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
        """See `AttendInWindow`; there is no bias.

        Raises:
            TypeError: There is a bias.
        """
        if bias is not None:
            raise TypeError("proposals cannot be checked with biased attention")
        self._write(key, value)
        starts = None if window is None else self._ends - window
        grid = tf.transpose(tf.gather(query[:, :, 0], self._of_rows), [0, 2, 1, 3])  # [R, H, Q, D]
        mixed = self._attend(
            grid, self._ends, scale, starts=starts, counts=self._counts, causal=True, cap=cap
        )
        at = tf.stack([self._places.rows, self._places.offsets], axis=-1)
        return tf.gather_nd(tf.transpose(mixed, [0, 2, 1, 3]), at)[:, :, tf.newaxis]

    def _write(self, key: tf.Tensor, value: tf.Tensor) -> None:
        places, heads = key.shape[:2]
        shape = [places, heads]
        row = tf.broadcast_to(self._places.rows[:, tf.newaxis], shape)
        layer = tf.fill(shape, self.layer_in_stack)
        head = tf.broadcast_to(tf.range(heads), shape)
        position = tf.broadcast_to(self._positions[:, tf.newaxis], shape)
        at = tf.stack([row, layer, head, position], axis=-1)  # [M, H, 4]
        for index, new in zip(self._indices, (key, value), strict=True):
            stack = self.caches[index]
            new = narrowed(new[:, :, 0], stack.dtype)
            self._put(index, tf.tensor_scatter_nd_update(stack, at, new))


class PromptAttention(_CacheAttention):
    """Attention of a piece of P prompt tokens to themselves and to all tokens before them.

    Prompts are padded at the end, so the causal mask alone hides padding: a real token sees only
    the tokens before it. Keys and values of padding are overwritten before any token sees them.
    """

    def __init__(
        self,
        caches: list[tf.Tensor],
        start: tf.Tensor,
        tokens: int,
        source: SourceAttention | None = None,
        *,
        is_native: bool = False,
    ) -> None:
        """Wraps the caches as they are before the piece.

        Args:
            caches: See `LayerCaches`.
            start: int32, the first position that the piece is written to.
            tokens: P, the number of positions that it takes.
            source: Attention to the source, if there is one.
            is_native: Whether the native kernels compute attention.
        """
        super().__init__(caches, source, is_native=is_native)
        self._start = start
        self._ends = tf.fill([caches[0].shape[0]], start + tokens)
        position = start + tf.range(tokens)
        self._visible = tf.range(self.length) <= position[:, tf.newaxis]  # [P, T]

    @property
    def positions(self) -> tf.Tensor:
        """See `AttendWithSource`; [1, T]."""
        return tf.range(self.length)[tf.newaxis]

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
        """See `AttendInWindow`."""
        self.write_piece(self._start, key, value)
        if self._is_native:
            starts = None if window is None else self._ends - window
            return self._attend(
                query, self._ends, scale, starts=starts, causal=True, bias=bias, cap=cap
            )
        visible = self._visible
        if window is not None:
            positions = self._start + tf.range(visible.shape[0])
            visible &= tf.range(self.length) > positions[:, tf.newaxis] - window
        return attention(query, *self.read(), visible, scale, bias=bias, cap=cap)

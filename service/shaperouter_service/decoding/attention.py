"""Attention over the caches of a batch: what families call as `Attend`.

A request's cache is a tape of T places. A token of the prompt takes one place, shared by all
beams; a step takes B, one for the newest token of each hypothesis. Nothing on the tape ever moves:
when hypotheses are dropped and split, only their lineage changes, which is the mask of the places
they see.

Where a model's weights are packed for the native kernels, these attend, too: what a tape has room
for costs nothing then, so a long cover is as fast as a tight one. XLA, which computes all that
there is room for, does the rest: what has a bias, and every other device.
"""

import tensorflow as tf
from tensorflow.compiler.tf2xla.python.xla import dynamic_update_slice

from shaperouter_service import kernels
from shaperouter_service.models.layers import attention


class SourceAttention:
    """Attention over what an encoder has made of each row's source, which nothing changes."""

    def __init__(
        self,
        keys: list[tf.Tensor],
        values: list[tf.Tensor],
        lengths: tf.Tensor,
        *,
        is_native: bool = False,
    ) -> None:
        """Takes the caches as they are.

        Args:
            keys: Of each layer, [R, H, S, D].
            values: Of each layer, [R, H, S, D].
            lengths: [R] int32, the first places, which alone are attended to.
            is_native: Whether the native kernels attend.
        """
        self._keys, self._values = keys, values
        self._lengths = lengths
        self._is_native = is_native
        places = tf.range(keys[0].shape[2])
        self._visible = (places < lengths[:, tf.newaxis])[:, tf.newaxis, tf.newaxis]  # [R, 1, 1, S]

    def __call__(self, layer: int, query: tf.Tensor, scale: float) -> tf.Tensor:
        """See `AttendWithSource.to_source`."""
        keys, values = self._keys[layer], self._values[layer]
        if self._is_native:
            return kernels.attend(query, keys, values, self._lengths, scale)
        return attention(query, keys, values, self._visible, scale)


class _TapeAttention:
    """What the two below share.

    Attributes:
        keys: Of each layer, [R, H, T, D].
        values: Of each layer, [R, H, T, D].
    """

    def __init__(
        self, keys: list[tf.Tensor], values: list[tf.Tensor], source: SourceAttention | None
    ) -> None:
        self.keys, self.values = keys, values
        self._source = source

    def to_source(self, layer: int, query: tf.Tensor, scale: float) -> tf.Tensor:
        """See `AttendWithSource`."""
        if self._source is None:
            raise TypeError("a decoder that attends to a source needs a source")
        return self._source(layer, query, scale)


class StepAttention(_TapeAttention):
    """Attention of the newest token of each hypothesis, which is appended to its row's tape."""

    def __init__(
        self,
        keys: list[tf.Tensor],
        values: list[tf.Tensor],
        *,
        prompt_places: tf.Tensor,
        starts: tf.Tensor,
        visible: tf.Tensor,
        source: SourceAttention | None = None,
        is_native: bool = False,
    ) -> None:
        """Takes the tape as it is before the step.

        Args:
            keys: Of each layer, [R, H, T, D].
            values: Of each layer, [R, H, T, D].
            prompt_places: [R] int32, first places, each of which has one token.
            starts: [R] int32, the first of the B places of the newest tokens.
            visible: [R, B, T], places that hypotheses see, the newest tokens' among them.
            source: What an encoder made of the source, if there is one.
            is_native: Whether the native kernels attend.
        """
        super().__init__(keys, values, source)
        rows, beams, _ = visible.shape
        self._is_native = is_native
        self._prompt_places = prompt_places
        heads = keys[0].shape[1]
        row, head, beam = tf.meshgrid(
            tf.range(rows), tf.range(heads), tf.range(beams), indexing="ij"
        )
        place = starts[:, tf.newaxis, tf.newaxis] + beam
        # One scatter: XLA updates it in place, and compiles it faster than a write for each row.
        self._places = tf.stack([row, head, place], axis=-1)  # [R, H, B, 3]
        self._visible = visible  # [R, B, T]
        self._ends = starts + beams

    @property
    def positions(self) -> tf.Tensor:
        """See `AttendWithSource`; [R, T]."""
        _, beams, length = self._visible.shape
        place, prompt_places = tf.range(length), self._prompt_places[:, tf.newaxis]
        steps = (place - prompt_places) // beams
        return tf.where(place < prompt_places, place, prompt_places + steps)

    def __call__(
        self,
        layer: int,
        query: tf.Tensor,
        key: tf.Tensor,
        value: tf.Tensor,
        scale: float,
        *,
        bias: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """See `Attend`; P = B."""
        for caches, new in ((self.keys, key), (self.values, value)):
            caches[layer] = tf.tensor_scatter_nd_update(caches[layer], self._places, new)
        keys, values = self.keys[layer], self.values[layer]
        visible = self._visible
        if self._is_native and bias is None:
            # One hypothesis sees all that there is.
            seen = None if visible.shape[1] == 1 else visible
            return kernels.attend(query, keys, values, self._ends, scale, visible=seen)
        return attention(query, keys, values, visible[:, tf.newaxis], scale, bias=bias)


class PromptAttention(_TapeAttention):
    """Attention of a piece of P prompt tokens over what lies before them and over themselves.

    Prompts are padded at the end, so the causal mask alone hides padding: a real token sees only
    what lies before it. What padding leaves on the tape is overwritten before anything sees it.
    """

    def __init__(
        self,
        keys: list[tf.Tensor],
        values: list[tf.Tensor],
        start: tf.Tensor,
        tokens: int,
        source: SourceAttention | None = None,
        *,
        is_native: bool = False,
    ) -> None:
        """Takes the tape as it is before the piece.

        Args:
            keys: Of each layer, [R, H, T, D].
            values: Of each layer, [R, H, T, D].
            start: int32, the first of the places that the piece is written to.
            tokens: P, how many those are.
            source: What an encoder made of the source, if there is one.
            is_native: Whether the native kernels attend.
        """
        super().__init__(keys, values, source)
        self._start = start
        self._is_native = is_native
        rows, _, length, _ = keys[0].shape
        self._is_whole = tokens == length
        self._ends = tf.fill([rows], start + tokens)
        place = start + tf.range(tokens)
        self._visible = tf.range(length) <= place[:, tf.newaxis]  # [P, T]

    @property
    def positions(self) -> tf.Tensor:
        """See `AttendWithSource`; [1, T]."""
        return tf.range(self._visible.shape[1])[tf.newaxis]

    def __call__(
        self,
        layer: int,
        query: tf.Tensor,
        key: tf.Tensor,
        value: tf.Tensor,
        scale: float,
        *,
        bias: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """See `Attend`."""
        for caches, new in ((self.keys, key), (self.values, value)):
            caches[layer] = new if self._is_whole else self._write(caches[layer], new)
        keys, values = self.keys[layer], self.values[layer]
        if self._is_native and bias is None:
            return kernels.attend(query, keys, values, self._ends, scale, causal=True)
        return attention(query, keys, values, self._visible, scale, bias=bias)

    def _write(self, cache: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
        zero = tf.zeros([], tf.int32)
        return dynamic_update_slice(cache, new, tf.stack([zero, zero, self._start, zero]))

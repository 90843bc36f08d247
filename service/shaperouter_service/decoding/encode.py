"""The encode graph: reads sources into the caches that the decoder attends to."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from shaperouter_service.decoding import caches
from shaperouter_service.decoding.attention import SourceCaches
from shaperouter_service.decoding.batch import Batch
from shaperouter_service.decoding.program import SourceProgram
from shaperouter_service.models import EncoderDecoder, Model


class EncodeProgram(SourceProgram):
    """Reads sources of up to S positions into batches of R rows.

    A batch has exactly S positions for sources, and the program writes all of them. It does not
    read the caches of tokens.
    """

    def __init__(self, name: str, model: Model, *, rows: int, length: int) -> None:
        """Describes the function; see `Program`. The length is S."""
        super().__init__(name, model, rows=rows, beams=1, length=0, source_length=length)
        if not isinstance(model.family, EncoderDecoder):
            raise TypeError(f"{model.name} has no encoder")
        self._family = model.family

    def __call__(self, batch: Batch, sources: Mapping[int, Sequence[Any]]) -> None:
        """Reads the sources of some rows of a batch.

        Args:
            batch: The keys and values of the sources go to its caches.
            sources: Sources by row; `State.source_lengths` holds the positions that they take.
        """
        padded, lengths = self._idle_arguments(batch)
        for row, source in sources.items():
            padded[row, : len(source)] = source
            lengths[row] = batch.state.source_lengths[row]
        self._run(batch, padded, lengths)

    @property
    def label(self) -> str:
        """See `Program`."""
        return f"encode_{self.rows}x{self.source_length}"

    @property
    def _specs(self) -> Sequence[Any]:
        return [
            self._family.source_spec(self.rows, self.source_length),
            tf.TensorSpec([self.rows], tf.int32),
        ]

    @property
    def _results(self) -> tuple[()]:
        return ()

    @property
    def _written_shapes(self) -> list[list[int]]:
        return self._source_shapes

    def _body(
        self, source: tf.Tensor, lengths: tf.Tensor, handles: Sequence[tf.Tensor]
    ) -> tuple[()]:
        """Reads sources.

        Args:
            source: See `EncoderDecoder.source_spec`.
            lengths: [R] int32, positions of the sources; 0 where a row has no source.
            handles: Handles of the caches of sources.
        """
        weights = self.model.weights.read()

        def read(index: tf.Tensor, values: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
            keep = SourceCaches(values)
            self._family.encode(weights, source, lengths, keep)
            return index + 1, keep.caches

        # A loop of at most one iteration, for the same reason as in prefill.
        rounds = tf.cast(tf.reduce_any(lengths > 0), tf.int32)
        _, values = tf.while_loop(
            lambda index, *_: index < rounds,
            read,
            (tf.constant(0), caches.read(handles, self.model, self._source_shapes)),
        )
        caches.write(handles, values)
        return ()

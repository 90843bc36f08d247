"""The align graph: rereads whole transcripts to find when their words were spoken."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from shaperouter_service.decoding import caches
from shaperouter_service.decoding.alignment import alignment_scores
from shaperouter_service.decoding.batch import Batch
from shaperouter_service.decoding.program import SourceProgram
from shaperouter_service.models import EncoderDecoder, Model


class Aligned(NamedTuple):
    """Attention scores and log-probabilities that time R transcripts of up to P tokens.

    Attributes:
        scores: [R, A, P, S] float32, attention to the source before the softmax; the scores of a
            token locate the token after it.
        logprobs: [R, P - 1] float32, log-probabilities, among text tokens, of all tokens but the
            first.
    """

    scores: Any
    logprobs: Any


class AlignProgram(SourceProgram):
    """Reads transcripts of up to P tokens, for rows of a batch whose sources are encoded.

    The program does not change the batch, and does not read the caches of tokens.
    """

    def __init__(
        self,
        name: str,
        model: Model,
        *,
        rows: int,
        length: int,
        heads: Sequence[tuple[int, int]],
        text_tokens: int,
    ) -> None:
        """Describes the function; see `Program` and `alignment_scores`. The length is P."""
        super().__init__(
            name,
            model,
            rows=rows,
            beams=1,
            length=length,
            source_length=model.family.max_source_length,
        )
        if not isinstance(model.family, EncoderDecoder):
            raise TypeError(f"{model.name} has no encoder")
        self._family = model.family
        self._heads, self._text_tokens = tuple(heads), text_tokens

    def __call__(self, batch: Batch, transcripts: Mapping[int, Sequence[int]]) -> Aligned:
        """Reads the transcripts of some rows of a batch, each of 1 to P tokens."""
        tokens, lengths = self._idle_arguments(batch)
        for row, transcript in transcripts.items():
            tokens[row, : len(transcript)] = transcript
            lengths[row] = len(transcript)
        aligned: Aligned = self._run(batch, tokens, lengths)
        return aligned

    @property
    def label(self) -> str:
        """See `Program`."""
        heads = "-".join(f"{layer}.{head}" for layer, head in self._heads)
        return f"align_{self.rows}x{self.length}_text{self._text_tokens}_heads{heads}"

    @property
    def _specs(self) -> Sequence[Any]:
        return [
            tf.TensorSpec([self.rows, self.length], tf.int32),
            tf.TensorSpec([self.rows], tf.int32),
        ]

    @property
    def _results(self) -> Aligned:
        shape = [self.rows, len(self._heads), self.length, self.source_length]
        return Aligned(
            scores=tf.TensorSpec(shape, tf.float32),
            logprobs=tf.TensorSpec([self.rows, self.length - 1], tf.float32),
        )

    @property
    def _written_shapes(self) -> list[list[int]]:
        return []

    def _body(self, tokens: tf.Tensor, lengths: tf.Tensor, handles: Sequence[tf.Tensor]) -> Aligned:
        """Reads transcripts.

        Args:
            tokens: [R, P] int32.
            lengths: [R] int32, tokens of the transcripts; 0 where a row has no transcript.
            handles: Handles of the caches of sources.
        """
        weights = self.model.weights.read()
        values = caches.read(handles, self.model, self._source_shapes)

        def read(index: tf.Tensor, aligned: Aligned) -> tuple[tf.Tensor, Aligned]:
            del aligned
            scores, logprobs = alignment_scores(
                self._family,
                weights,
                tokens,
                source=values,
                heads=self._heads,
                text_tokens=self._text_tokens,
            )
            return index + 1, Aligned(scores=scores, logprobs=logprobs)

        # A loop of at most one iteration, for the same reason as in prefill.
        iterations = tf.cast(tf.reduce_any(lengths > 0), tf.int32)
        nothing = tf.nest.map_structure(
            lambda spec: tf.zeros(spec.shape, spec.dtype), self._results
        )
        _, aligned = tf.while_loop(
            lambda index, _: index < iterations, read, (tf.constant(0), nothing)
        )
        return Aligned(*aligned)

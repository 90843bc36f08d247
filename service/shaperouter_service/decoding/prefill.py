"""The prefill graph: reads prompts into the caches of a batch.

The score graph is the same, and also reports how likely the tokens of the prompts are.

Prefill chooses no token: the decode graph does, from the logits that prefill leaves. So prefill
needs neither options nor beams, and lanes of all beam widths share it. For requests with a source
it reads all tokens but the last and leaves no logits; see `State.has_source`.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from shaperouter_service.decoding import caches
from shaperouter_service.decoding.attention import PromptAttention, SourceAttention
from shaperouter_service.decoding.batch import Batch
from shaperouter_service.decoding.drafting import read_piece
from shaperouter_service.decoding.no_speech import no_speech_probability, reads_no_speech
from shaperouter_service.decoding.options import Options
from shaperouter_service.decoding.program import Program
from shaperouter_service.decoding.scores import token_logprobs
from shaperouter_service.decoding.search import Logprobs
from shaperouter_service.models import Model

# Tokens of a short piece. What is left to read of a prompt that begins like an earlier one is often
# a question of a few words.
SHORT_PIECE = 32


def computed_positions(tokens: int, piece: int, *, reads_short: bool) -> int:
    """Number of positions of a row that are computed to read the last tokens of a prompt.

    Args:
        tokens: How many.
        piece: Maximum number of tokens per call.
        reads_short: Whether few tokens are read as a short piece; see `reads_short`.
    """
    whole, rest = divmod(tokens, piece)
    last = SHORT_PIECE if reads_short and rest <= SHORT_PIECE else piece
    return whole * piece + (last if rest else 0)


def reads_short(model: Model, piece: int) -> bool:
    """Whether calls that read at most `piece` tokens of a prompt have a loop for short pieces.

    Without the kernels the loop would contain all layers, and take long to compile.
    """
    return model.weights.is_packed and piece > SHORT_PIECE and not model.family.max_source_length


class Piece(NamedTuple):
    """A piece of prompts that was read.

    Attributes:
        is_last: Whether the prompts have been read completely.
        start: Position of its first token.
        tokens: Number of tokens computed for each row, padding included.
        logprobs: [R, P, ...], log-probabilities of the tokens after those of the piece; undefined
            after the end of a prompt. None unless the program scores.
    """

    is_last: bool
    start: int
    tokens: int
    logprobs: Logprobs | None


class _Inputs(NamedTuple):
    """Inputs of a call, besides the caches.

    Attributes:
        tokens: [R, P] int32, the piece.
        lengths: [R] int32, number of tokens to read in each row, over all pieces.
        active: [R] bool, the rows to read.
        start: int32, position of the piece's first token.
        is_short: bool, whether to read only the first SHORT_PIECE tokens of the piece; empty for a
            program that reads no short pieces.
        source_lengths: [R] int32, positions of the sources; empty without an encoder.
        rules: Rules of R transcripts; empty for models that do not transcribe.
        no_speech: [R] float32, see `State`.
        next_tokens: [R, P] int32, the tokens after those of the piece; empty unless it scores.
        likeliest: bool, whether to look for the likeliest tokens; empty unless it scores.
    """

    tokens: Any
    lengths: Any
    active: Any
    start: Any
    is_short: Any
    source_lengths: Any
    rules: Any
    no_speech: Any
    next_tokens: Any
    likeliest: Any


class _Outputs(NamedTuple):
    """Results of a call, besides the caches.

    Attributes:
        logits: [R, V] float32, logits after the prompts' last tokens, if the piece contains them;
            empty with sources.
        no_speech: [R] float32, see `State`.
        logprobs: See `Piece`; empty unless it scores.
    """

    logits: Any
    no_speech: Any
    logprobs: Any


class PrefillProgram(Program):
    """Reads prompts into batches of R rows and T positions, P tokens per call.

    With an encoder, a batch has the maximum number of positions for sources, so that each rung of
    prompts needs only one graph, not one for each rung of sources.

    The tokens that a continued request has already generated are read like a prompt, except for the
    newest one. The logits after them are not used.

    If P equals T, a call reads whole prompts. If P is smaller, a prompt takes several calls, and
    other requests can run between them. With the native kernels, a call whose rows have few tokens
    left reads a short piece, in a loop of its own.

    Attributes:
        piece: P, maximum number of tokens per call.
        scores: Whether it also computes the log-probabilities of the tokens that it reads.
    """

    def __init__(
        self, name: str, model: Model, *, rows: int, length: int, piece: int, scores: bool = False
    ) -> None:
        """Describes the function; see `Program`. A piece is at most the length."""
        super().__init__(
            name,
            model,
            rows=rows,
            beams=1,
            length=length,
            source_length=model.family.max_source_length,
        )
        self.piece = min(piece, length)
        self.scores = scores

    def __call__(
        self, batch: Batch, active: Sequence[int], start: int, *, likeliest: bool = False
    ) -> Piece:
        """Reads the next piece of the prompts of some rows of a batch of this graph's shape.

        Args:
            batch: The piece goes to its caches; the last piece also sets its logits.
            active: The rows to read.
            start: Number of tokens of the prompts that have been read.
            likeliest: Whether to look for the likeliest tokens; only if it scores.
        """
        lengths = batch.state.read_lengths
        longest = max(lengths[row] for row in active)
        is_short = self._reads_short and longest - start <= SHORT_PIECE
        size = SHORT_PIECE if is_short else self.piece
        # The last piece may read some tokens again, so as not to write beyond the cache.
        start = min(start, self.length - size)
        end = start + size
        tokens = np.zeros([self.rows, self.piece], np.int32)
        # All hypotheses of a row have the same prompt.
        tokens[:, :size] = batch.state.tokens[:, 0, start:end]
        mask = np.zeros([self.rows], np.bool_)
        mask[list(active)] = True
        inputs = self._inputs(batch, tokens, mask, start, is_short=is_short)
        if self.scores:
            next_tokens = np.zeros_like(tokens)
            known = batch.state.tokens[:, 0, start + 1 : end + 1]
            next_tokens[:, : known.shape[1]] = known
            inputs = inputs._replace(next_tokens=next_tokens, likeliest=np.bool_(likeliest))
        outputs = self._run(batch, inputs)
        batch.record_no_speech(outputs.no_speech)
        is_last = longest <= end
        if is_last and not batch.state.has_source:
            batch.logits = outputs.logits
        return Piece(is_last, start, size, outputs.logprobs or None)

    @property
    def _reads_short(self) -> bool:
        """Whether it has a loop for short pieces."""
        return reads_short(self.model, self.piece) and not self.scores

    @property
    def label(self) -> str:
        """See `Program`."""
        kind = "score" if self.scores else "prefill"
        return f"{kind}_{self.rows}x{self.length}_piece{self.piece}"

    @property
    def _specs(self) -> Sequence[Any]:
        lengths = tf.TensorSpec([self.rows], tf.int32)
        has_transcript = self.model.family.has_transcript
        tokens = tf.TensorSpec([self.rows, self.piece], tf.int32)
        return [
            _Inputs(
                tokens=tokens,
                lengths=lengths,
                active=tf.TensorSpec([self.rows], tf.bool),
                start=tf.TensorSpec([], tf.int32),
                is_short=tf.TensorSpec([], tf.bool) if self._reads_short else (),
                source_lengths=lengths if self.source_length else (),
                rules=Options.specs(self.rows, has_transcript=has_transcript).transcript,
                no_speech=self._results.no_speech,
                next_tokens=tokens if self.scores else (),
                likeliest=tf.TensorSpec([], tf.bool) if self.scores else (),
            )
        ]

    @property
    def _results(self) -> _Outputs:
        family = self.model.family
        logits = tf.TensorSpec([self.rows, family.vocab_size], tf.float32)
        return _Outputs(
            logits=() if self.source_length else logits,
            no_speech=tf.TensorSpec([self.rows], tf.float32) if family.has_transcript else (),
            logprobs=Logprobs.specs(self.rows, self.piece) if self.scores else (),
        )

    def _inputs(
        self,
        batch: Batch,
        tokens: np.ndarray,
        active: np.ndarray,
        start: int,
        *,
        is_short: bool = False,
    ) -> _Inputs:
        state = batch.state
        return _Inputs(
            tokens=tokens,
            lengths=state.read_lengths,
            active=active,
            start=np.int32(start),
            is_short=np.bool_(is_short) if self._reads_short else (),
            source_lengths=state.source_lengths,
            rules=batch.options_on_device.transcript,
            no_speech=state.no_speech,
            next_tokens=(),
            likeliest=(),
        )

    def _idle_arguments(self, batch: Batch) -> Sequence[Any]:
        tokens = np.zeros([self.rows, self.piece], np.int32)
        inputs = self._inputs(batch, tokens, np.zeros([self.rows], np.bool_), 0)
        if self.scores:
            inputs = inputs._replace(next_tokens=tokens, likeliest=np.bool_(False))
        return [inputs]

    def _body(self, inputs: _Inputs, handles: Sequence[tf.Tensor]) -> _Outputs:
        """Reads a piece."""
        tokens, lengths, active, start, is_short, source_lengths, rules, no_speech = inputs[:8]
        family = self.model.family
        weights = self.model.weights.read()
        written = len(self._token_shapes)
        values = caches.read(handles[:written], self.model, self._token_shapes)
        source = None
        if self.source_length:
            source_values = caches.read(handles[written:], self.model, self._source_shapes)
            source = SourceAttention(source_values, source_lengths, is_native=weights.is_packed)

        def read(
            size: int, index: tf.Tensor, outputs: _Outputs, values: list[tf.Tensor]
        ) -> tuple[tf.Tensor, _Outputs, list[tf.Tensor]]:
            # This is the only iteration. XLA would hoist whatever does not depend on it.
            first = start + index
            own, drafts = caches.split(self.model, values)
            attend = PromptAttention(own, first, size, source, is_native=weights.is_packed)
            positions = tf.broadcast_to(first + tf.range(size), [self.rows, size])
            hidden = family.forward(weights, tokens[:, :size], positions, attend)
            if self.model.draft is not None:
                drafts = read_piece(
                    self.model.draft, weights.of_draft, tokens[:, :size], first, drafts
                )

            def logits_after(positions: tf.Tensor) -> tf.Tensor:
                here = tf.clip_by_value(positions - start, 0, size - 1)
                return family.logits(weights, tf.gather(hidden, here, axis=1, batch_dims=1))

            if not self.source_length:
                outputs = outputs._replace(logits=logits_after(lengths - 1))
            if family.has_transcript:
                # Positions after a prompt's end are padding.
                reads = reads_no_speech(rules, start, size, active)
                reads &= rules.no_speech_position < lengths
                probability = no_speech_probability(
                    outputs.no_speech,
                    reads,
                    rules,
                    lambda: logits_after(rules.no_speech_position),
                    is_native=weights.is_packed,
                )
                outputs = outputs._replace(no_speech=probability)
            if self.scores:
                logprobs = token_logprobs(
                    hidden,
                    inputs.next_tokens,
                    count=tf.reduce_max(tf.where(active, lengths, 0)) - start,
                    likeliest=inputs.likeliest,
                    is_native=weights.is_packed,
                    logits=lambda hidden: family.logits(weights, hidden),
                )
                outputs = outputs._replace(logprobs=logprobs)
            return index + 1, outputs, [*attend.caches, *drafts]

        # The call that compiles the graph has no active row and need not read a prompt. This is a
        # loop of at most one iteration, not a condition, because XLA may copy what the branches of
        # a condition change or leave unchanged.
        iterations = tf.cast(tf.reduce_any(active), tf.int32)
        nothing = () if self.source_length else tf.zeros([self.rows, family.vocab_size])
        unscored = Logprobs.none(self.rows, self.piece) if self.scores else ()
        outputs = _Outputs(nothing, no_speech, unscored)
        sizes = {self.piece: iterations}
        if self._reads_short:
            short = iterations * tf.cast(is_short, tf.int32)
            sizes = {self.piece: iterations - short, SHORT_PIECE: short}
        for size, count in sizes.items():
            _, outputs, values = tf.while_loop(
                lambda index, *_, count=count: index < count,
                functools.partial(read, size),
                (tf.constant(0), outputs, values),
            )
        caches.write(handles[:written], values)
        return _Outputs(*outputs)

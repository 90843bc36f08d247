"""A batch: requests that one graph advances together."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from shaperouter_service.decoding.caches import Caches, Shape
from shaperouter_service.decoding.ngrams import count_matches
from shaperouter_service.decoding.options import Options
from shaperouter_service.decoding.state import State
from shaperouter_service.generation.option import NO_TOKEN
from shaperouter_service.models import Model


class Batch:
    """R rows, each free or a request, in exactly the shape of the graph that runs them.

    A row holds all state of its request, so rows can move between batches and a batch can change
    its shape at any chunk boundary. Only one thread may use a batch at a time.

    Attributes:
        model: The model of the requests.
        rows: R.
        beams: B, hypotheses of each row; 1 without beam search.
        length: T, positions for tokens.
        source_length: S, positions for the source; 0 without an encoder.
        caches: Keys and values, on the device.
        state: Tokens and scores, on the host; only programs, `begin`, `reshape` and `copy_row`
            change it.
        options: Options, on the host; only `begin`, `reshape` and `copy_row` change them.
        logits: [R, V] float32, logits of rows without a new token yet; None if no row has any.
    """

    def __init__(
        self,
        model: Model,
        *,
        rows: int,
        beams: int,
        length: int,
        source_length: int = 0,
        caches: Caches | None = None,
    ) -> None:
        """Makes a batch of free rows, with new caches unless `caches` of its shape are given."""
        self.model = model
        self.rows, self.beams, self.length = rows, beams, length
        self.source_length = source_length
        self.caches = Caches(model, self.shape) if caches is None else caches
        self.state = self._empty_state()
        self._state_on_device: State | None = None
        self.options = self._no_options()
        self._options_on_device: Options | None = None
        self.logits: np.ndarray | None = None

    @classmethod
    def of_shape(cls, model: Model, shape: Shape, *, beams: int) -> Self:
        """Makes a batch of free rows in a graph's shape."""
        rows, length, source_length = shape
        return cls(model, rows=rows, beams=beams, length=length, source_length=source_length)

    @classmethod
    def of_source(cls, model: Model, caches: Caches, *, beams: int, length: int) -> Self:
        """Makes a batch of one free row from the caches of its encoded source."""
        shape = caches.shape._replace(length=length)
        caches.reshape([0], shape)
        return cls(
            model,
            rows=shape.rows,
            beams=beams,
            length=length,
            source_length=shape.source_length,
            caches=caches,
        )

    @property
    def shape(self) -> Shape:
        """Shape that a graph must have to run this batch."""
        return Shape(self.rows, self.length, self.source_length)

    @property
    def options_on_device(self) -> Options:
        """Options as tensors, kept from call to call: creating 20 of them takes 0.5 ms."""
        if self._options_on_device is None:
            self._options_on_device = tf.nest.map_structure(tf.constant, self.options)
        return self._options_on_device

    @property
    def state_on_device(self) -> State:
        """State as tensors, which a call gets from the call before it."""
        return self.state if self._state_on_device is None else self._state_on_device

    def advance(self, state: State, on_device: State) -> None:
        """Takes the state that a call has left, on the host and as tensors."""
        self.state, self._state_on_device = state, on_device

    def record_no_speech(self, probabilities: Any) -> None:
        """Takes what a call has found: [R] float32; empty for models that do not transcribe."""
        self.state = self.state._replace(no_speech=probabilities)
        self._state_on_device = None

    def drafted(self, row: int) -> int:
        """Number of tokens of a row that its draft model has read; 0 if that is not known."""
        return int(self.state.drafted[row]) if self.state.has_draft else 0

    def limit_drafted(self, row: int, tokens: int) -> None:
        """Notes that a row's draft model has read its first tokens only.

        Args:
            row: A row that is read from a copy of other keys and values.
            tokens: Number of tokens whose keys and values of the draft model are in the copy.
        """
        if self.state.has_draft:
            self.state.drafted[row] = min(tokens, self.state.drafted[row])
            self._state_on_device = None

    def begin(
        self,
        row: int,
        prompt: Sequence[int],
        options: Options,
        generated: Sequence[int] = (),
        source_length: int = 0,
        *,
        source: Sequence[Any] = (),
    ) -> None:
        """Puts a request in a free row, before its prefill; see `State.begin`.

        Args:
            row: A free row.
            prompt: Tokens of the prompt.
            options: The request's record.
            generated: Tokens already generated.
            source_length: Positions of the source.
            source: Input of the encoder.
        """
        new_tokens = int(options.max_new_tokens[0])
        self.state.begin(row, prompt, new_tokens, generated, source_length)
        sequence = [*prompt, *generated]
        # Proposals come from them, too; see `speculation`.
        if options.no_repeat_ngram_size[0] > 0 or (self.beams == 1 and not self.source_length):
            self.state.matches[row, :, : len(sequence)] = count_matches(sequence)
        if self.state.source:
            self.state.source.tokens[row, : len(source)] = source
            if options.encoder_no_repeat_ngram_size[0] > 0:
                # NO_TOKEN between source and sequence stops the counts at their border.
                matches = count_matches([*source, NO_TOKEN, *sequence])[: len(source)]
                self.state.source.matches[row, :, : len(source)] = matches
        for field, value in zip(
            tf.nest.flatten(self.options), tf.nest.flatten(options), strict=True
        ):
            field[row] = value[0]
        self._state_on_device = self._options_on_device = None

    def reshape(self, kept: Sequence[int], shape: Shape) -> None:
        """Changes the shape.

        Args:
            kept: Rows to keep; they become the first, in this order.
            shape: The new shape, with room for the sequences and sources that are kept.
        """
        state, options, logits = self.state, self.options, self.logits
        self.caches.reshape(kept, shape)
        self.rows, self.length, self.source_length = shape
        self.state = self._empty_state()
        self.options = self._no_options()
        self._state_on_device = self._options_on_device = None
        for row, old_row in enumerate(kept):
            self._copy_small(row, state, options, old_row)
        self.logits = None
        if logits is not None:
            self._logits()[: len(kept)] = logits[list(kept)]

    def copy_row(self, row: int, source: "Batch", source_row: int) -> None:
        """Copies a request from another batch into a free row."""
        self.caches.copy_row(row, source.caches, source_row)
        self._copy_small(row, source.state, source.options, source_row)
        self._state_on_device = self._options_on_device = None
        if source.logits is not None:
            self._logits()[row] = source.logits[source_row]

    def _logits(self) -> np.ndarray:
        if self.logits is None:
            self.logits = np.zeros([self.rows, self.model.family.vocab_size], np.float32)
        return self.logits

    def _no_options(self) -> Options:
        neutral = Options.neutral(has_transcript=self.model.family.has_transcript)
        options: Options = tf.nest.map_structure(
            lambda field: np.repeat(field, self.rows, axis=0), neutral
        )
        return options

    def _empty_state(self) -> State:
        return State.empty(
            rows=self.rows,
            beams=self.beams,
            length=self.length,
            max_length=self.model.family.max_length,
            source_length=self.source_length,
            has_transcript=self.model.family.has_transcript,
            has_draft=self.model.draft is not None,
        )

    def _copy_small(self, row: int, state: State, options: Options, source_row: int) -> None:
        for ours, theirs in zip(
            tf.nest.flatten((self.state, self.options)),
            tf.nest.flatten((state, options)),
            strict=True,
        ):
            ours[row] = 0
            # Their shapes differ only in the last dimension: tokens or positions.
            fits = min(ours.shape[-1], theirs.shape[-1])
            if ours.ndim == 1:
                ours[row] = theirs[source_row]
            else:
                ours[row, ..., :fits] = theirs[source_row, ..., :fits]

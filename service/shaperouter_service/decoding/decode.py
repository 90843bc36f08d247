"""The decode graph: advances the rows of a batch together, several steps per call."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from shaperouter_service.decoding import caches
from shaperouter_service.decoding.attention import SourceAttention, StepAttention
from shaperouter_service.decoding.batch import Batch
from shaperouter_service.decoding.beams import BeamSearch
from shaperouter_service.decoding.constraints import Constraints
from shaperouter_service.decoding.decode_values import (
    MAX_STEPS,
    NO_BITS,
    NO_PROPOSALS,
    Decoded,
    Inputs,
    Limits,
    Loop,
    Outputs,
    TokenBits,
)
from shaperouter_service.decoding.drafting import draft
from shaperouter_service.decoding.no_speech import no_speech_probability, reads_no_speech
from shaperouter_service.decoding.options import Options
from shaperouter_service.decoding.program import Program, pack
from shaperouter_service.decoding.sampling import Sampling
from shaperouter_service.decoding.search import Logprobs, Search
from shaperouter_service.decoding.speculation import BySource, Checked, check, propose
from shaperouter_service.decoding.state import State
from shaperouter_service.models import Model, Weights


class DecodeProgram(Program):
    """Advances batches, one token per step, or more with proposals; see `speculation`.

    A row stops when its sequence ends or has its maximum number of tokens.
    """

    def __init__(
        self,
        name: str,
        model: Model,
        *,
        rows: int,
        beams: int,
        length: int,
        speculates: bool = False,
    ) -> None:
        """Describes the function; see `Program`.

        Args:
            name: See `Program`.
            model: See `Program`.
            rows: See `Program`.
            beams: See `Program`.
            length: See `Program`.
            speculates: Whether steps can check proposals, which takes longer to compile. They can
                in any case if the model has a draft model.
        """
        super().__init__(
            name,
            model,
            rows=rows,
            beams=beams,
            length=length,
            source_length=model.family.source_positions(length),
        )
        self._speculates = speculates
        # Created once, since these placeholders are as large as the real inputs.
        self._no_stopping: Any = ()
        if beams > 1:
            self._no_stopping = tf.zeros(self._bits_shape, tf.uint8)
        self._no_constraints: Any = ()
        if not model.family.has_transcript:
            self._no_constraints = tf.nest.map_structure(
                lambda spec: tf.zeros(spec.shape, spec.dtype), self._constraint_specs
            )
        self._no_logits: Any = ()
        if not self.source_length:
            self._no_logits = tf.zeros([rows, model.family.vocab_size])
        self._no_proposals: Any = ()
        if self.checks_proposals:
            self._no_proposals = tf.nest.map_structure(
                lambda spec: tf.zeros(spec.shape, spec.dtype), BySource.specs(rows)
            )

    @property
    def checks_proposals(self) -> bool:
        """Whether its steps can check proposals.

        With beam search, hypotheses change with each token. Without the native kernels, a step of
        more tokens costs more, and its logits may differ in their last bits.
        """
        can = self.beams == 1 and not self.source_length and self.model.weights.is_packed
        return can and (self._speculates or self.model.draft is not None)

    def __call__(
        self,
        batch: Batch,
        active: Sequence[int],
        steps: int,
        stopping: TokenBits = NO_BITS,
        allowed: TokenBits = NO_BITS,
        *,
        proposals: Limits = NO_PROPOSALS,
    ) -> Decoded:
        """Advances some rows of a batch of this graph's shape.

        Without sources, rows that prefill has just read get their first token in a separate step,
        in which no other row advances.

        Args:
            batch: Its state and caches become those after the steps.
            active: The rows to advance.
            steps: Number of steps: at most MAX_STEPS, and few enough that no active row attends to
                more than T positions. 1 with `stopping` or `allowed`, which are valid for one step.
            stopping: For each active row with stop strings and each hypothesis in use,
                [ceil(V / 8)] uint8: a bit per token, lowest first, set if the token would complete
                a stop string.
            allowed: For each active row with a constraint and each hypothesis in use, likewise the
                tokens that may follow.
            proposals: For each row that takes part in speculation, the maximum numbers of proposals
                of a step; no row that has a constraint. A call ends early once a row has MAX_STEPS
                new tokens, or needs more than T positions.
        """
        logits = self._no_logits if batch.logits is None else batch.logits
        inputs = Inputs(
            batch.state_on_device,
            batch.options_on_device,
            logits,
            _mask(self.rows, tuple(active)),
            _number(steps),
            self._bits(stopping) if stopping else self._no_stopping,
            self._constraints(allowed) if allowed else self._no_constraints,
            self._proposals(proposals),
        )
        tensors = self._call(batch, inputs)
        outputs = pack(self._structure, (tensor.numpy() for tensor in tensors))
        # They come first.
        batch.advance(outputs.state, pack(self._structure.state, iter(tensors)))
        lengths, prompt_lengths = batch.state.lengths, batch.state.prompt_lengths
        if not np.any((lengths == prompt_lengths) & (lengths > 0)):
            batch.logits = None
        proposed, accepted = outputs.proposed, outputs.accepted
        if not self.checks_proposals:
            none = np.zeros([self.rows], np.int32)
            proposed = accepted = BySource(none, none)
        return Decoded(int(outputs.steps), outputs.logprobs, proposed, accepted)

    def _proposals(self, proposals: Limits) -> Any:
        if not proposals or not self.checks_proposals:
            return self._no_proposals
        limits = np.zeros([2, self.rows], np.int32)
        limits[:, list(proposals)] = np.transpose(list(proposals.values()))
        return BySource(*limits)

    @property
    def _bits_shape(self) -> list[int]:
        return [self.rows, self.beams, math.ceil(self.model.family.vocab_size / 8)]

    @property
    def _constraint_specs(self) -> Constraints:
        return Constraints.specs(self.rows, self.beams, self.model.family.vocab_size)

    def _constraints(self, allowed: TokenBits) -> Constraints:
        return Constraints(_mask(self.rows, tuple(allowed)), self._bits(allowed))

    def _bits(self, bits: TokenBits) -> np.ndarray:
        whole = np.zeros(self._bits_shape, np.uint8)
        for row, hypotheses in bits.items():
            whole[row, : len(hypotheses)] = hypotheses
        return whole

    @property
    def label(self) -> str:
        """See `Program`."""
        label = f"decode_{self.rows}x{self.length}_beams{self.beams}"
        return f"{label}_proposals" if self.checks_proposals else label

    @property
    def _specs(self) -> Sequence[Any]:
        family = self.model.family
        return [
            Inputs(
                state=State.specs(
                    rows=self.rows,
                    beams=self.beams,
                    length=self.length,
                    max_length=family.max_length,
                    source_length=self.source_length,
                    has_transcript=family.has_transcript,
                    has_draft=self.model.draft is not None,
                ),
                options=Options.specs(self.rows, has_transcript=family.has_transcript),
                pending=()
                if self.source_length
                else tf.TensorSpec([self.rows, family.vocab_size], tf.float32),
                active=tf.TensorSpec([self.rows], tf.bool),
                steps=tf.TensorSpec([], tf.int32),
                stopping=() if self.beams == 1 else tf.TensorSpec(self._bits_shape, tf.uint8),
                constraints=() if family.has_transcript else self._constraint_specs,
                proposals=BySource.specs(self.rows) if self.checks_proposals else (),
            )
        ]

    @property
    def _results(self) -> Outputs:
        (inputs,) = self._specs
        return Outputs(
            state=inputs.state,
            steps=tf.TensorSpec([], tf.int32),
            logprobs=Logprobs.specs(self.rows, MAX_STEPS),
            proposed=inputs.proposals,
            accepted=inputs.proposals,
        )

    def _idle_arguments(self, batch: Batch) -> Sequence[Any]:
        none_active = np.zeros([self.rows], np.bool_)
        return [
            Inputs(
                batch.state,
                batch.options,
                self._no_logits,
                none_active,
                np.int32(0),
                self._no_stopping,
                self._no_constraints,
                self._no_proposals,
            )
        ]

    def _body(self, inputs: Inputs, handles: Sequence[tf.Tensor]) -> Outputs:
        """Advances the rows."""
        # Read outside the loop, so that the weights are constants in it.
        weights = self.model.weights.read()
        is_native = weights.is_packed
        search: Search = (
            Sampling(is_native=is_native)
            if self.beams == 1
            else BeamSearch(inputs.stopping, is_native=is_native)
        )
        written = len(self._token_shapes)
        source = None
        if self.source_length:
            source_values = caches.read(handles[written:], self.model, self._source_shapes)
            source = SourceAttention(
                source_values, inputs.state.source_lengths, is_native=weights.is_packed
            )
        vocab_size = self.model.family.vocab_size
        start = Loop(
            steps=tf.constant(0),
            state=inputs.state,
            logprobs=Logprobs.none(self.rows, MAX_STEPS),
            values=caches.read(handles[:written], self.model, self._token_shapes),
            checked=Checked.none(self.rows, vocab_size) if self.checks_proposals else (),
        )
        end = Loop(
            *tf.while_loop(
                lambda *loop: self._continues(inputs, Loop(*loop)),
                lambda *loop: self._step(inputs, Loop(*loop), search, weights, source),
                start,
            )
        )
        caches.write(handles[:written], end.values)
        outputs = Outputs(end.state, end.steps, end.logprobs)
        if not self.checks_proposals:
            return outputs
        return outputs._replace(
            proposed=end.checked.proposed_tokens, accepted=end.checked.accepted_tokens
        )

    def _continues(self, inputs: Inputs, loop: Loop) -> tf.Tensor:
        """Whether the loop continues: bool."""
        state = loop.state
        alive = inputs.active & (state.remaining > 0)
        continues = (loop.steps < inputs.steps) & tf.reduce_any(alive)
        if not self.checks_proposals:
            return continues
        # Rows get different numbers of tokens, so the first one without room ends the call.
        is_full = (state.lengths - inputs.state.lengths >= MAX_STEPS) | (
            state.lengths > self.length
        )
        continues &= ~tf.reduce_any(alive & is_full)
        return continues | tf.reduce_any(alive & loop.checked.is_left)

    def _step(
        self,
        inputs: Inputs,
        loop: Loop,
        search: Search,
        weights: Weights,
        source: SourceAttention | None,
    ) -> Loop:
        """Advances rows by one token: all rows, or only those that have logits already."""
        steps, state, logprobs, values, checked = loop
        options = inputs.options
        alive = inputs.active & (state.remaining > 0)
        begins = is_left = tf.constant(False)
        if self.checks_proposals:
            left = alive & checked.is_left
            is_left = tf.reduce_any(left)
            alive = tf.where(is_left, left, alive)
        if not self.source_length:
            # Rows without a new token get one from their prefill's logits before all rows
            # advance together. This needs no forward pass, and wastes none.
            fresh = state.lengths == state.prompt_lengths
            begins = tf.reduce_any(alive & fresh)
            alive &= fresh == begins
        if self.checks_proposals:
            made = state.lengths - inputs.state.lengths
            room = tf.minimum(self.length - state.lengths, MAX_STEPS - 1 - made)
            room = tf.minimum(room, state.remaining - 1)
            reads = alive & ~is_left & ~begins
            own, drafts = caches.split(self.model, values)
            limits = checked.limits(inputs.proposals)
            proposals = propose(state, reads, tf.minimum(room, limits.ngram))
            if self.model.draft is not None:
                proposals, state, drafts = draft(
                    self.model.draft,
                    weights.of_draft,
                    state,
                    options,
                    proposals,
                    limits=tf.minimum(room, limits.draft),
                    vocab_size=self.model.family.vocab_size,
                    values=drafts,
                )
            checked, own = check(
                self.model.family, weights, state, proposals, values=own, checked=checked
            )
            values = [*own, *drafts]
        visible, state = self._extend_lineage(state)

        def from_prefill() -> tf.Tensor:
            return tf.tile(inputs.pending[:, tf.newaxis], [1, self.beams, 1])

        def forward(values: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
            return self._forward(weights, state, visible, values, source)

        if self.source_length:
            logits, values = forward(values)
        elif self.checks_proposals:
            is_checked = tf.reduce_any(alive & checked.is_left)
            has_logits = begins | is_checked
            known = checked.next_logits_or(from_prefill(), is_checked)
            # A loop of at most one iteration, as XLA copies caches after two conditions.
            _, logits, values = tf.while_loop(
                lambda index, *_: index < 1 - tf.cast(has_logits, tf.int32),
                lambda index, _, values: (index + 1, *forward(values)),
                (tf.constant(0), known, values),
            )
        else:
            logits, values = tf.cond(
                begins, lambda: (from_prefill(), values), lambda: forward(values)
            )
        state = _with_no_speech(state, logits, options, alive, is_native=weights.is_packed)
        after, new = search.advance(logits, state, options, alive, inputs.constraints)
        if self.checks_proposals:
            tokens = tf.gather(after.tokens[:, 0], state.lengths, batch_dims=1)
            checked, came = checked.after(tokens, alive)
            if state.has_draft:
                # What the draft model has read beyond is no longer part of the sequence.
                right = tf.minimum(state.drafted, state.lengths)
                after = after._replace(drafted=tf.where(came, state.drafted, right))
        return Loop(
            # A token whose logits were known already takes no forward pass.
            steps=steps + 1 - tf.cast(is_left, tf.int32),
            state=_where(alive, after, state),
            logprobs=_write_step(logprobs, new, state.lengths - inputs.state.lengths, alive),
            values=values,
            checked=checked,
        )

    def _newest_positions(self, state: State) -> tf.Tensor:
        """First of the B positions of each row's newest tokens, [R]."""
        steps = state.lengths - state.prompt_positions
        return state.prompt_positions + self.beams * (steps - 1)

    def _extend_lineage(self, state: State) -> tuple[tf.Tensor, State]:
        """Positions that hypotheses see, including that of their newest token: [R, B, T]."""
        first = self._newest_positions(state)
        positions = tf.range(self.length)
        if not state.beams:
            return (positions <= first[:, tf.newaxis])[:, tf.newaxis], state
        own = first[:, tf.newaxis] + tf.range(self.beams)  # [R, B]
        visible = state.beams.lineage | (positions == own[..., tf.newaxis])
        return visible, state._replace(beams=state.beams._replace(lineage=visible))

    def _forward(
        self,
        weights: Weights,
        state: State,
        visible: tf.Tensor,
        values: list[tf.Tensor],
        source: SourceAttention | None,
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Computes logits [R, B, V] after the newest tokens, and caches that include them."""
        family = self.model.family
        own, drafts = caches.split(self.model, values)
        position = tf.broadcast_to(state.lengths[:, tf.newaxis] - 1, [self.rows, self.beams])
        newest = tf.gather(state.tokens, position, batch_dims=2)  # [R, B]
        attend = StepAttention(
            own,
            prompt_lengths=state.prompt_positions,
            starts=self._newest_positions(state),
            visible=visible,
            source=source,
            is_native=weights.is_packed,
        )
        hidden = family.forward(weights, newest, position, attend)  # [R, B, E]
        return family.logits(weights, hidden), [*attend.caches, *drafts]


# Made once, as it takes longer to make a tensor than to use it.


@functools.lru_cache(maxsize=256)
def _mask(rows: int, chosen: tuple[int, ...]) -> tf.Tensor:
    """Whether each row is one of those chosen: [R] bool."""
    mask = np.zeros([rows], np.bool_)
    mask[list(chosen)] = True
    return tf.constant(mask)


@functools.lru_cache(maxsize=MAX_STEPS + 1)
def _number(steps: int) -> tf.Tensor:
    """A number of steps: int32."""
    return tf.constant(steps)


def _with_no_speech(
    state: State, logits: tf.Tensor, options: Options, alive: tf.Tensor, *, is_native: bool
) -> State:
    """Records the probability that nobody speaks, for rows where this step computes it."""
    rules = options.transcript
    if not rules:
        return state
    reads = reads_no_speech(rules, state.lengths - 1, 1, alive)
    # All hypotheses are equal at the end of a prompt.
    found = no_speech_probability(
        state.no_speech, reads, rules, lambda: logits[:, 0], is_native=is_native
    )
    return state._replace(no_speech=found)


def _where(alive: tf.Tensor, new: State, old: State) -> State:
    """Takes `alive` rows from `new` and all others from `old`."""

    def choose(new_field: tf.Tensor, old_field: tf.Tensor) -> tf.Tensor:
        mask = tf.reshape(alive, [-1, *[1] * (len(old_field.shape) - 1)])
        return tf.where(mask, new_field, old_field)

    chosen: State = tf.nest.map_structure(choose, new, old)
    return chosen


def _write_step(chunk: Logprobs, new: Logprobs, column: tf.Tensor, alive: tf.Tensor) -> Logprobs:
    """Writes a step's log-probabilities into `column` [R] of the chunk [R, MAX_STEPS, ...]."""
    here = (tf.range(MAX_STEPS) == column[:, tf.newaxis]) & alive[:, tf.newaxis]
    chosen = tf.where(here, new.chosen[:, tf.newaxis], chunk.chosen)
    here = here[..., tf.newaxis]
    return Logprobs(
        chosen=chosen,
        top_tokens=tf.where(here, new.top_tokens[:, tf.newaxis], chunk.top_tokens),
        top=tf.where(here, new.top[:, tf.newaxis], chunk.top),
    )

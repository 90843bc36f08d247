"""Greedy decoding and sampling: one token for each row."""

import tensorflow as tf

from shaperouter_service.decoding.constraints import Constraints
from shaperouter_service.decoding.ngrams import extend_matches
from shaperouter_service.decoding.options import Options
from shaperouter_service.decoding.processors import process
from shaperouter_service.decoding.randomness import perturb
from shaperouter_service.decoding.search import Logprobs, Search, append, is_end
from shaperouter_service.decoding.state import State
from shaperouter_service.decoding.warpers import warp


class Sampling(Search):
    """Greedy decoding or sampling, as each row asks; B = 1."""

    def advance(
        self,
        logits: tf.Tensor,
        state: State,
        options: Options,
        active: tf.Tensor,
        constraints: Constraints | tuple[()] = (),
    ) -> tuple[State, Logprobs]:
        """See `Search`."""
        logits = tf.squeeze(logits, 1)
        tokens, lengths = tf.squeeze(state.tokens, 1), state.lengths
        source = state.source
        scores = process(
            logits,
            tokens,
            lengths,
            state.prompt_lengths,
            tf.squeeze(state.matches, 1),
            source=source and source._replace(matches=tf.squeeze(source.matches, 1)),
            source_lengths=state.source_lengths,
            options=options,
            constraints=constraints and constraints.per_hypothesis(),
            active=active,
            is_native=self.is_native,
        )
        new = choose(scores, lengths, options, active, is_native=self.is_native)
        remaining = tf.where(is_end(new, options), 0, state.remaining - 1)
        after = state._replace(
            tokens=append(state.tokens, lengths, new[:, tf.newaxis]),
            matches=extend_matches(state.matches, state.tokens, new[:, tf.newaxis]),
            source=source and source.after(source.matches, new[:, tf.newaxis]),
            lengths=lengths + 1,
            remaining=remaining,
        )
        # The log-probabilities of a transcript are those among the tokens that its rules allow.
        reported = scores if options.transcript else logits
        return after, self._logprobs(reported, new, options, active)

    def _logprobs(
        self, logits: tf.Tensor, new: tf.Tensor, options: Options, active: tf.Tensor
    ) -> Logprobs:
        rows = logits.shape[0]

        none = Logprobs.none(rows)

        def computed() -> Logprobs:
            wants_others = tf.reduce_any((options.logprobs > 0) & active)
            return Logprobs.of(logits, new, likeliest=wants_others, is_native=self.is_native)

        wanted = tf.reduce_any((options.logprobs >= 0) & active)
        return Logprobs(*tf.cond(wanted, computed, lambda: none))


def choose(
    scores: tf.Tensor,
    positions: tf.Tensor,
    options: Options,
    active: tf.Tensor,
    *,
    is_native: bool,
) -> tf.Tensor:
    """Chooses the likeliest token of each row, or a sample.

    Args:
        scores: [R, V] float32, logits after all processors.
        positions: [R] int32, the positions that tokens are chosen for.
        options: Options of R rows.
        active: [R] bool; the results of other rows are undefined.
        is_native: Whether the native kernels compute softmax, truncation and noise, or XLA.

    Returns:
        [R] int32.
    """
    applies = options.do_sample & active

    def sampled() -> tf.Tensor:
        warped = warp(scores, options, 1, applies, is_native=is_native)
        return perturb(warped, options.seed, positions, applies, is_native=is_native)

    # The noise costs as much as a step of the smallest models, so only sampling rows get it.
    keys = tf.cond(tf.reduce_any(applies), sampled, lambda: scores)
    return tf.argmax(keys, axis=-1, output_type=tf.int32)

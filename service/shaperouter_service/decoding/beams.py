"""Beam search, as in Hugging Face Transformers 5 (`GenerationMixin._beam_search`).

A row has B open hypotheses; its request uses the first n = `num_beams`. One step of a row:

1. The step adds the processed log-probabilities of all continuations to the hypotheses' scores.
   With `renormalize_logits`, and for a transcript, they are normalized once more before that.
2. The best continuations become candidates: enough that n remain open even if every end token is
   among them. With sampling, candidates are drawn without replacement instead.
3. The best n candidates that do not end, by an end token or a stop string, are the next open
   hypotheses. There are fewer than n if too many end by stop strings.
4. Of the first n candidates, those that end compete with the hypotheses that ended before. Their
   scores are divided by a power of their lengths, which for a transcript exclude the end token. The
   best n are kept.
5. The search stops when, by the rule that `early_stopping` names, no open hypothesis can still beat
   an ended one, or when there is no room for another token.

The unused entry of a hypothesis has the score LOWEST. In Transformers it has -1e9: with a strongly
negative length penalty, finished sequences score lower than that and unfinished ones replace them.
"""

import tensorflow as tf

from shaperouter_service.decoding.constraints import Constraints
from shaperouter_service.decoding.hypotheses import per_hypothesis
from shaperouter_service.decoding.ngrams import extend_matches
from shaperouter_service.decoding.options import Options
from shaperouter_service.decoding.processors import process
from shaperouter_service.decoding.randomness import perturb
from shaperouter_service.decoding.search import Logprobs, Search, append, is_end
from shaperouter_service.decoding.softmax import Softmax
from shaperouter_service.decoding.state import LOWEST, Beams, State
from shaperouter_service.decoding.warpers import warp
from shaperouter_service.generation.limits import MAX_EOS_TOKENS
from shaperouter_service.generation.option import NO_TOKEN, EarlyStopping


class BeamSearch(Search):
    """Beam search; rows may use fewer than B beams."""

    def __init__(self, stopping: tf.Tensor, *, is_native: bool) -> None:
        """Sets the tokens that complete stop strings.

        Args:
            stopping: [R, B, ceil(V / 8)] uint8, a bit for each token, lowest first: whether it
                completes a stop string of its row after that hypothesis.
            is_native: Whether the native kernels compute softmax, truncation and noise, or XLA.
        """
        super().__init__(is_native=is_native)
        self._stopping = stopping

    def advance(
        self,
        logits: tf.Tensor,
        state: State,
        options: Options,
        active: tf.Tensor,
        constraints: Constraints | tuple[()] = (),
    ) -> tuple[State, Logprobs]:
        """See `Search`."""
        rows, beams, vocab_size = logits.shape
        before = state.beams
        if not isinstance(before, Beams):
            raise TypeError("beam search needs a state with beams")
        used = tf.range(beams) < options.num_beams[:, tf.newaxis]  # [R, B]
        lengths, generated = state.lengths, state.lengths + 1 - state.prompt_lengths

        # 1. and 2.
        logprobs = self._log_softmax(logits)
        scores = self._processed(logprobs, state, options, constraints, active)
        scores = self._renormalized(scores, options, active)
        scores += before.scores[..., tf.newaxis]
        scores, flat, is_candidate = self._candidates(
            tf.where(used[..., tf.newaxis], scores, LOWEST), lengths, options, active
        )  # [R, K] each
        parent, new = flat // vocab_size, flat % vocab_size
        has_end = is_end(new, options)
        ends = has_end | self._completes_stop(parent, new) | (state.remaining == 1)[:, tf.newaxis]
        new_logprobs = tf.gather(
            tf.reshape(logprobs, [rows, beams * vocab_size]), flat, batch_dims=1
        )

        def of_parents(kept: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
            """Returns values [R, B, ...] of the hypotheses that candidates [R, B] continue."""
            return tf.gather(values, tf.gather(parent, kept, batch_dims=1), batch_dims=1)

        def continued(kept: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            """Returns tokens and log-probabilities of candidates [R, B], with the new token."""
            return (
                append(of_parents(kept, state.tokens), lengths, tf.gather(new, kept, batch_dims=1)),
                append(
                    of_parents(kept, before.logprobs),
                    lengths,
                    tf.gather(new_logprobs, kept, batch_dims=1),
                ),
            )

        # 3.
        open_scores, kept = tf.math.top_k(tf.where(ends, LOWEST, scores), beams)
        open_tokens, open_logprobs = continued(kept)
        open_matches = extend_matches(
            of_parents(kept, state.matches),
            of_parents(kept, state.tokens),
            tf.gather(new, kept, batch_dims=1),
        )
        lineage = of_parents(kept, before.lineage)

        # 4.
        finals = self._final_scores(scores, generated, has_end, options)
        may_end = ends & (tf.range(scores.shape[1]) < options.num_beams[:, tf.newaxis])
        full = tf.reduce_all(before.ended | ~used, axis=-1)
        first = options.early_stopping == EarlyStopping.FIRST
        closed = (full & first) | ~before.improvable
        finals = tf.where(may_end & ~closed[:, tf.newaxis], finals, LOWEST)
        # Hypotheses that ended before come first, so that they win ties.
        merged = tf.concat([tf.where(used, before.ended_scores, LOWEST), finals], axis=-1)
        ended_scores, best = tf.math.top_k(merged, beams)
        is_new = best >= beams
        old, fresh = tf.where(is_new, 0, best), tf.where(is_new, best - beams, 0)
        fresh_tokens, fresh_logprobs = continued(fresh)

        def merge(old_values: tf.Tensor, new_values: tf.Tensor) -> tf.Tensor:
            old_values = tf.gather(old_values, old, batch_dims=1)
            choose = tf.reshape(is_new, [rows, beams, *[1] * (len(old_values.shape) - 2)])
            return tf.where(choose, new_values, old_values)

        # 5.
        never = options.early_stopping == EarlyStopping.NEVER
        longest = tf.where(never & (options.length_penalty > 0), options.max_new_tokens, generated)
        longest = longest[:, tf.newaxis]
        reachable = _per_length(open_scores[:, :1], longest, options)[:, 0]
        # LOWEST until n hypotheses have ended.
        worst = tf.reduce_min(tf.where(used, ended_scores, -LOWEST), axis=-1)
        improvable = before.improvable & (reachable > worst)
        full = worst > LOWEST
        stop = ~improvable | (full & first) | tf.reduce_all(ends | ~is_candidate, axis=-1)

        after = state._replace(
            tokens=open_tokens,
            matches=open_matches,
            source=state.source
            and state.source.after(
                of_parents(kept, state.source.matches), tf.gather(new, kept, batch_dims=1)
            ),
            lengths=lengths + 1,
            remaining=tf.where(stop, 0, state.remaining - 1),
            beams=Beams(
                lineage=lineage,
                scores=open_scores,
                logprobs=open_logprobs,
                ended_tokens=merge(before.ended_tokens, fresh_tokens),
                ended_lengths=merge(
                    before.ended_lengths,
                    tf.broadcast_to((lengths + 1)[:, tf.newaxis], [rows, beams]),
                ),
                ended_scores=ended_scores,
                ended_logprobs=merge(before.ended_logprobs, fresh_logprobs),
                improvable=improvable,
            ),
        )
        return after, Logprobs.none(rows)

    def _completes_stop(self, parent: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
        """Whether new tokens complete stop strings of the hypotheses they continue, [R, K]."""
        rows, beams, size = self._stopping.shape
        flat = tf.reshape(self._stopping, [rows, beams * size])
        found = tf.gather(flat, parent * size + new // 8, batch_dims=1)
        return tf.bitwise.right_shift(found, tf.cast(new % 8, tf.uint8)) % 2 == 1

    def _log_softmax(self, scores: tf.Tensor) -> tf.Tensor:
        return Softmax.of(scores, is_native=self.is_native).logprobs(scores)

    def _renormalized(self, scores: tf.Tensor, options: Options, active: tf.Tensor) -> tf.Tensor:
        """Normalizes the processed log-probabilities [R, B, V] of the rows that ask for it."""
        if options.transcript:
            # A transcript's rules often leave little mass, so all transcripts need it.
            return self._among_allowed(scores)
        applies = options.renormalize_logits & active

        def normalized() -> tf.Tensor:
            applies_to = applies[:, tf.newaxis, tf.newaxis]
            return tf.where(applies_to, self._among_allowed(scores), scores)

        return tf.cond(tf.reduce_any(applies), normalized, lambda: scores)

    def _among_allowed(self, scores: tf.Tensor) -> tf.Tensor:
        """Log-probabilities [R, B, V] among the allowed tokens, all LOWEST if there are none."""
        softmax = Softmax.of(scores, is_native=self.is_native)
        # Without an allowed token they would be NaN, which some devices rank first.
        return tf.where(softmax.largest > LOWEST, softmax.logprobs(scores), LOWEST)

    def _processed(
        self,
        logprobs: tf.Tensor,
        state: State,
        options: Options,
        constraints: Constraints | tuple[()],
        active: tf.Tensor,
    ) -> tf.Tensor:
        """Processes and, where sampled, warps each hypothesis' log-probabilities [R, B, V]."""
        rows, beams, vocab_size = logprobs.shape
        each = options.per_hypothesis(beams)
        active = per_hypothesis(active, beams)
        scores = process(
            tf.reshape(logprobs, [rows * beams, vocab_size]),
            tf.reshape(state.tokens, [rows * beams, -1]),
            per_hypothesis(state.lengths, beams),
            per_hypothesis(state.prompt_lengths, beams),
            tf.reshape(state.matches, [rows * beams, -1]),
            source=state.source and state.source.per_hypothesis(beams),
            source_lengths=state.source and per_hypothesis(state.source_lengths, beams),
            options=each,
            constraints=constraints and constraints.per_hypothesis(),
            active=active,
            is_native=self.is_native,
        )
        sampled = each.do_sample & active
        # Truncation must leave a token that does not end, besides all end tokens.
        min_kept = tf.maximum(2, 1 + _count_ends(each))

        def warped() -> tf.Tensor:
            return warp(scores, each, min_kept, sampled, is_native=self.is_native)

        scores = tf.cond(tf.reduce_any(sampled), warped, lambda: scores)
        return tf.reshape(scores, [rows, beams, vocab_size])

    @staticmethod
    def _final_scores(
        scores: tf.Tensor, generated: tf.Tensor, has_end: tf.Tensor, options: Options
    ) -> tf.Tensor:
        """Scores candidates [R, K] as ended hypotheses of `generated` [R] new tokens.

        `has_end`, [R, K], is true where the last token is an end token.
        """
        lengths = generated[:, tf.newaxis]
        if options.transcript:
            # Excludes the end token, as openai/whisper and CTranslate2 do; Transformers counts it.
            lengths = tf.maximum(lengths - tf.cast(has_end, tf.int32), 1)
        return _per_length(scores, lengths, options)

    def _candidates(
        self, scores: tf.Tensor, positions: tf.Tensor, options: Options, active: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Selects or draws candidates from all continuations.

        Args:
            scores: [R, B, V].
            positions: [R] int32, position in the sequence that the token is chosen for.
            options: Options of R rows.
            active: [R] bool.

        Returns:
            Scores and indices in [B * V], in order, and which of them are candidates, since rows
            have different numbers of these: [R, K] each.
        """
        rows, beams, vocab_size = scores.shape
        scores = tf.reshape(scores, [rows, beams * vocab_size])

        applies = options.do_sample & active

        def perturbed() -> tf.Tensor:
            # The K largest of log-probabilities plus Gumbel noise are a sample of K without
            # replacement, in the order of drawing (Kool et al. 2019).
            return perturb(scores, options.seed, positions, applies, is_native=self.is_native)

        keys = tf.cond(tf.reduce_any(applies), perturbed, lambda: scores)
        max_candidates = min(beams * vocab_size, beams * (1 + MAX_EOS_TOKENS))
        _, flat = tf.math.top_k(keys, max_candidates)
        candidates = options.num_beams * tf.maximum(2, 1 + _count_ends(options))
        is_candidate = tf.range(max_candidates) < candidates[:, tf.newaxis]
        found = tf.gather(scores, flat, batch_dims=1)
        return tf.where(is_candidate, found, LOWEST), flat, is_candidate


def _per_length(scores: tf.Tensor, lengths: tf.Tensor, options: Options) -> tf.Tensor:
    """Divides scores [R, K] by the power `length_penalty` of lengths, [R, 1] or [R, K]."""
    powers = tf.pow(tf.cast(lengths, tf.float32), options.length_penalty[:, tf.newaxis])
    # A hypothesis stays better than an unused entry even if its quotient underflows float32.
    return tf.where(scores > LOWEST, tf.maximum(scores / powers, tf.float32.min), LOWEST)


def _count_ends(options: Options) -> tf.Tensor:
    """Counts the end tokens of each row, [R] int32."""
    return tf.reduce_sum(tf.cast(options.eos_token_ids != NO_TOKEN, tf.int32), axis=-1)

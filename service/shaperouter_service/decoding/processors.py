"""Penalties, biases and bans, which change logits before a token is chosen.

Each function is the processor of that name in Hugging Face Transformers, for rows with different
options. `process` applies them in Transformers' order.
"""

import tensorflow as tf

from shaperouter_service.decoding.constraints import Constraints, constrain
from shaperouter_service.decoding.ngrams import completes_repeated_ngram
from shaperouter_service.decoding.options import Options
from shaperouter_service.decoding.state import SourceTokens
from shaperouter_service.decoding.timestamps import constrain_transcript
from shaperouter_service.generation.limits import MAX_BIAS_TOKENS
from shaperouter_service.generation.option import NO_TOKEN


def process(
    scores: tf.Tensor,
    tokens: tf.Tensor,
    lengths: tf.Tensor,
    prompt_lengths: tf.Tensor,
    matches: tf.Tensor,
    *,
    source: SourceTokens | tuple[()] = (),
    source_lengths: tf.Tensor | tuple[()] = (),
    options: Options,
    constraints: Constraints | tuple[()] = (),
    active: tf.Tensor,
    is_native: bool,
) -> tf.Tensor:
    """Applies all processors, in order.

    Args:
        scores: [R, V] float32; logits, or with beam search log-probabilities.
        tokens: [R, N] int32, the sequence so far, prompt first.
        lengths: [R] int32, number of tokens in each sequence; at least 1 where active.
        prompt_lengths: [R] int32, number of these that belong to the prompt.
        matches: [R, N] int32, see `ngrams`; ignored in rows without `no_repeat_ngram_size`.
        source: Sources of R rows, with matches of [R, S]; empty if no encoder reads tokens.
        source_lengths: [R] int32, number of tokens in each source.
        options: Options of R rows.
        constraints: What may follow; empty for models that transcribe.
        active: [R] bool; a processor that no active row uses is skipped.
        is_native: See `constrain`.

    Returns:
        [R, V] float32.
    """
    generated = lengths - prompt_lengths
    forced = _forced(lengths, generated, options)
    applies = active & (
        tf.reduce_any(options.biases != 0, axis=-1)
        | (options.encoder_repetition_penalty != 1)
        | (options.repetition_penalty != 1)
        | (options.no_repeat_ngram_size > 0)
        | (options.encoder_no_repeat_ngram_size > 0)
        | (generated < options.min_new_tokens)
        | (forced != NO_TOKEN)
    )

    def processed() -> tf.Tensor:
        result = _bias(scores, tokens, lengths, options)
        if source:
            # The encoder's penalty favours the source's tokens, so it is inverted.
            reward = 1 / options.encoder_repetition_penalty
            result = _penalize(result, source.tokens, source_lengths, reward)
        result = _penalize(result, tokens, lengths, options.repetition_penalty)
        sizes = options.no_repeat_ngram_size
        result = _ban_ngrams(result, tokens, lengths, matches, sizes)
        if source:
            sizes = options.encoder_no_repeat_ngram_size
            result = _ban_ngrams(result, source.tokens, source_lengths, source.matches, sizes)
        result = _ban_early_end(result, generated, options)
        return _force(result, forced)

    result = tf.cond(tf.reduce_any(applies), processed, lambda: scores)
    if constraints:
        # A forced token is not part of the text that a constraint is about.
        is_free = active & (forced == NO_TOKEN)
        result = constrain(
            result,
            scores,
            constraints._replace(applies=constraints.applies & is_free),
            active,
            is_native=is_native,
        )
    if not options.transcript:
        return result
    return constrain_transcript(
        result,
        tokens,
        lengths,
        prompt_lengths,
        rules=options.transcript,
        end_tokens=options.eos_token_ids[:, 0],
        active=active,
    )


def _bias(scores: tf.Tensor, tokens: tf.Tensor, lengths: tf.Tensor, options: Options) -> tf.Tensor:
    """Adds biases to tokens that complete a biased run; a bias of minus infinity bans them."""
    runs = options.biased_tokens  # [R, MAX_BIASES, MAX_BIAS_TOKENS]
    recent = lengths[:, tf.newaxis] + tf.range(1 - MAX_BIAS_TOKENS, 0)  # [R, MAX_BIAS_TOKENS - 1]
    recent = tf.gather(tokens, tf.maximum(recent, 0), batch_dims=1)
    unused = runs == NO_TOKEN
    precedes = tf.reduce_all(
        unused[:, :, :-1] | (runs[:, :, :-1] == recent[:, tf.newaxis]), axis=-1
    )
    run_lengths = tf.reduce_sum(tf.cast(~unused, tf.int32), axis=-1)
    # In a sequence shorter than the run, `recent` repeats the first token.
    fits = run_lengths - 1 <= lengths[:, tf.newaxis]
    bias = tf.where(precedes & fits & ~unused[:, :, -1], options.biases, 0.0)
    return tf.tensor_scatter_nd_add(scores, _indices(tf.maximum(runs[:, :, -1], 0)), bias)


def _penalize(
    scores: tf.Tensor, tokens: tf.Tensor, lengths: tf.Tensor, penalties: tf.Tensor
) -> tf.Tensor:
    """Makes tokens less likely that are already in the sequence (Keskar et al. 2019, CTRL)."""
    there = tf.range(tokens.shape[1]) < lengths[:, tf.newaxis]
    # The first token, which is always there, fills the unused positions.
    seen = _mark(scores, tf.where(there, tokens, tokens[:, :1]))
    penalty = penalties[:, tf.newaxis]
    return tf.where(seen, tf.where(scores < 0, scores * penalty, scores / penalty), scores)


def _ban_ngrams(
    scores: tf.Tensor, tokens: tf.Tensor, lengths: tf.Tensor, matches: tf.Tensor, sizes: tf.Tensor
) -> tf.Tensor:
    """Bans tokens that would complete a run of `sizes` [R] tokens already in `tokens`."""
    completes = completes_repeated_ngram(matches, lengths, sizes)
    # A position that bans nothing scatters a 0, which changes nothing in a maximum.
    banned = tf.tensor_scatter_nd_max(
        tf.zeros(scores.shape, tf.int32),
        _indices(tf.maximum(tokens, 0)),
        tf.cast(completes, tf.int32),
    )
    return tf.where(banned > 0, -float("inf"), scores)


def _ban_early_end(scores: tf.Tensor, generated: tf.Tensor, options: Options) -> tf.Tensor:
    """Bans end tokens while the generation is shorter than its minimum."""
    early = generated < options.min_new_tokens
    ends = options.eos_token_ids
    bans = early[:, tf.newaxis] & (ends != NO_TOKEN)
    bias = tf.where(bans, -float("inf"), 0.0)
    return tf.tensor_scatter_nd_add(scores, _indices(tf.maximum(ends, 0)), bias)


def _forced(lengths: tf.Tensor, generated: tf.Tensor, options: Options) -> tf.Tensor:
    """Returns the token that each row must get, or NO_TOKEN: [R] int32."""
    begins = tf.where(lengths == 1, options.forced_bos_token_id, NO_TOKEN)
    ends = tf.where(generated == options.max_new_tokens - 1, options.forced_eos_token_id, NO_TOKEN)
    return tf.where(ends != NO_TOKEN, ends, begins)


def _force(scores: tf.Tensor, forced: tf.Tensor) -> tf.Tensor:
    """Allows only the forced token, even if it is banned."""
    forced = forced[:, tf.newaxis]
    only = tf.where(tf.range(scores.shape[1]) == forced, 0.0, -float("inf"))
    return tf.where(forced != NO_TOKEN, only, scores)


def _mark(scores: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
    """Marks each row's tokens [R, N] in a mask: [R, V] bool."""
    return tf.tensor_scatter_nd_update(
        tf.zeros(scores.shape, tf.bool), _indices(tokens), tf.ones(tokens.shape, tf.bool)
    )


def _indices(tokens: tf.Tensor) -> tf.Tensor:
    """Returns the indices [R, N, 2] of tokens [R, N] in a tensor [R, V]."""
    rows = tf.range(tokens.shape[0])[:, tf.newaxis]
    return tf.stack([tf.broadcast_to(rows, tokens.shape), tokens], axis=-1)

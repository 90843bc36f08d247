"""Rules on a transcript's tokens: which may come first, and which timestamps may follow.

They are those of Transformers' `SuppressTokensAtBeginLogitsProcessor` and
`WhisperTimeStampLogitsProcessor`, for rows with different rules, and apply after all of
`processors`. Tokens that are never allowed have biases of minus infinity, as with other models.
"""

import tensorflow as tf

from shaperouter_service.decoding.options import TranscriptRules
from shaperouter_service.generation.option import NO_TOKEN


def constrain_transcript(
    scores: tf.Tensor,
    tokens: tf.Tensor,
    lengths: tf.Tensor,
    prompt_lengths: tf.Tensor,
    *,
    rules: TranscriptRules,
    end_tokens: tf.Tensor,
    active: tf.Tensor,
) -> tf.Tensor:
    """Bans tokens that would break a rule.

    Args:
        scores: [R, V] float32; logits, or with beam search log-probabilities.
        tokens: [R, N] int32, the sequence so far, prompt first.
        lengths: [R] int32, number of tokens in each sequence.
        prompt_lengths: [R] int32, number of these that belong to the prompt.
        rules: Rules of R rows.
        end_tokens: [R] int32, end token of each row; smaller ids are text.
        active: [R] bool; nothing is computed if no active row has rules to apply.

    Returns:
        [R, V] float32.
    """
    begins = lengths == prompt_lengths
    suppresses = tf.reduce_any(rules.begin_suppressed != NO_TOKEN, axis=-1)
    has_timestamps = rules.first_timestamp != NO_TOKEN
    smallest, largest = rules.first_token[:, 0], rules.first_token[:, 1]
    has_range = smallest != NO_TOKEN
    applies = active & ((begins & (suppresses | has_range)) | has_timestamps)

    def constrained() -> tf.Tensor:
        ids = tf.range(scores.shape[1])
        begin_suppressed = tf.reduce_any(
            ids == rules.begin_suppressed[:, :, tf.newaxis], axis=1
        )  # [R, V]
        outside = (ids < smallest[:, tf.newaxis]) | (ids > largest[:, tf.newaxis])
        begin_suppressed |= has_range[:, tf.newaxis] & outside
        result = _ban(scores, begins[:, tf.newaxis] & begin_suppressed)
        banned = _breaks_order(
            ids, tokens, lengths, prompt_lengths, rules=rules, end_tokens=end_tokens
        )
        result = _ban(result, has_timestamps[:, tf.newaxis] & banned)
        banned = _is_less_likely_text(ids, result, rules)
        return _ban(result, has_timestamps[:, tf.newaxis] & banned)

    return tf.cond(tf.reduce_any(applies), constrained, lambda: scores)


def _breaks_order(
    ids: tf.Tensor,
    tokens: tf.Tensor,
    lengths: tf.Tensor,
    prompt_lengths: tf.Tensor,
    *,
    rules: TranscriptRules,
    end_tokens: tf.Tensor,
) -> tf.Tensor:
    """Marks tokens, [R, V] bool, that break the order of timestamps.

    A transcript begins with a timestamp. Timestamps come in pairs, except before the end, and never
    decrease.
    """
    first = rules.first_timestamp
    positions = tf.range(tokens.shape[1])
    generated = (positions >= prompt_lengths[:, tf.newaxis]) & (positions < lengths[:, tf.newaxis])
    is_timestamp = generated & (tokens >= first[:, tf.newaxis])
    count = lengths - prompt_lengths

    def at(position: tf.Tensor) -> tf.Tensor:
        return tf.gather(is_timestamp, tf.maximum(position, 0), batch_dims=1)

    after_timestamp = (count > 0) & at(lengths - 1)
    # A timestamp as the first token counts as a pair: the segment that it begins is still open.
    after_pair = after_timestamp & ((count < 2) | at(lengths - 2))
    after_end = after_timestamp & ~after_pair

    newest = tf.reduce_max(tf.where(is_timestamp, positions, -1), axis=-1)
    last = tf.gather(tokens, tf.maximum(newest, 0), batch_dims=1)
    # The next segment may begin where the last ended, but no segment is empty.
    earliest = tf.where(newest < 0, first, tf.where(after_end, last, last + 1))

    def column(rows: tf.Tensor) -> tf.Tensor:
        return rows[:, tf.newaxis]

    timestamps, text = ids >= column(first), ids < column(end_tokens)
    begins = column(count == 0)
    return (
        (ids == column(first - 1))
        | (column(after_pair) & timestamps)
        | (column(after_end) & text)
        | (timestamps & (ids < column(earliest)))
        | (begins & ~timestamps)
        | (begins & (ids > column(rules.last_initial_timestamp)))
    )


def _is_less_likely_text(ids: tf.Tensor, scores: tf.Tensor, rules: TranscriptRules) -> tf.Tensor:
    """Marks all other tokens, [R, V] bool, if timestamps together are likelier than any of them."""
    timestamps = ids >= rules.first_timestamp[:, tf.newaxis]
    nothing = -float("inf")
    timestamp_score = tf.reduce_logsumexp(tf.where(timestamps, scores, nothing), axis=-1)
    other_score = tf.reduce_max(tf.where(timestamps, nothing, scores), axis=-1)
    return (timestamp_score > other_score)[:, tf.newaxis] & ~timestamps


def _ban(scores: tf.Tensor, banned: tf.Tensor) -> tf.Tensor:
    return tf.where(banned, -float("inf"), scores)

"""Proposals of a draft model: a small model that tells what a larger one may say next.

The draft model has keys and values of its own, beside those of the model. It reads prompts with the
model. In a step it reads what it has not read yet, usually the newest tokens, and then one of its
proposals after the other. It chooses each of them as the request does, with the same noise: if both
models are equally sure of a token, they sample the same one.
"""

from typing import NamedTuple

import tensorflow as tf

from shaperouter_service.decoding.attention import CheckAttention, PromptAttention
from shaperouter_service.decoding.options import Options
from shaperouter_service.decoding.sampling import choose
from shaperouter_service.decoding.speculation import Proposals
from shaperouter_service.decoding.state import State
from shaperouter_service.decoding.step_places import (
    MAX_PROPOSALS,
    StepPlaces,
    within_places,
)
from shaperouter_service.models import Family, Weights

# Maximum number of passes in a step. A draft model that has not read the newest tokens, because it
# paused or the tokens repeated others, reads up to 8 of a row in a pass. If it lags further behind,
# it proposes nothing until it has caught up, so that no step takes long.
MAX_PASSES = 16


class _Loop(NamedTuple):
    """The values that each pass of the draft model changes.

    Attributes:
        passes: int32, how many there were.
        tokens: [R, K] int32, the proposals.
        counts: [R] int32, number of proposals of the draft model.
        read: [R] int32, number of tokens that it has read, proposals included.
        values: Its caches.
    """

    passes: tf.Tensor
    tokens: tf.Tensor
    counts: tf.Tensor
    read: tf.Tensor
    values: list[tf.Tensor]


def read_piece(
    family: Family,
    weights: Weights,
    tokens: tf.Tensor,
    start: tf.Tensor,
    values: list[tf.Tensor],
) -> list[tf.Tensor]:
    """Reads a piece of prompts.

    Args:
        family: The draft model.
        weights: Its weights.
        tokens: [R, P] int32, the piece.
        start: int32, position of its first token.
        values: Its caches.

    Returns:
        The caches that include the piece.
    """
    rows, size = tokens.shape
    attend = PromptAttention(values, start, size, is_native=True)
    positions = tf.broadcast_to(start + tf.range(size), [rows, size])
    family.forward(weights, _known(family, tokens), positions, attend)
    return attend.caches


def draft(
    family: Family,
    weights: Weights,
    state: State,
    options: Options,
    proposals: Proposals,
    *,
    limits: tf.Tensor,
    vocab_size: int,
    values: list[tf.Tensor],
) -> tuple[Proposals, State, list[tf.Tensor]]:
    """Proposes tokens for rows that have no proposals.

    Args:
        family: The draft model.
        weights: Its weights.
        state: State of R rows without beam search.
        options: Options of R rows.
        proposals: Proposals of another source.
        limits: [R] int32, maximum number of proposals of the draft model.
        vocab_size: V of the model that it proposes for.
        values: Its caches.

    Returns:
        All proposals, the state after the draft model has read tokens, and its caches.
    """
    lengths = state.lengths
    wanted = tf.clip_by_value(limits, 0, MAX_PROPOSALS)
    wanted = tf.where(proposals.reads & (proposals.counts == 0), wanted, 0)
    wanted = within_places(wanted, tf.reduce_sum(proposals.counts))

    def propose(loop: _Loop) -> _Loop:
        passes, tokens, counts, read, values = loop
        drafts = counts < wanted
        unread = lengths + counts - read
        ahead = within_places(tf.where(drafts, tf.minimum(unread - 1, MAX_PROPOSALS), 0))
        places = StepPlaces.of(drafts, ahead)
        ids = _sequence(state, tokens, read)
        ids = tf.gather_nd(ids, tf.stack([places.rows, places.offsets], axis=-1))
        attend = CheckAttention(values, places, read + 1)
        # Unused places, too, must have a position that the model knows.
        positions = tf.minimum(tf.gather(read, places.rows) + places.offsets, attend.length - 1)
        hidden = family.forward(
            weights.for_rows(places.count),
            _known(family, ids)[:, tf.newaxis],
            positions[:, tf.newaxis],
            attend,
        )
        last = tf.minimum(places.firsts + ahead, hidden.shape[0] - 1)
        logits = family.logits(weights, tf.gather(hidden[:, 0], last))[:, :vocab_size]
        is_next = drafts & (ahead + 1 == unread)
        new = choose(logits, lengths + counts, options, is_next, is_native=True)
        here = (tf.range(MAX_PROPOSALS) == counts[:, tf.newaxis]) & is_next[:, tf.newaxis]
        return _Loop(
            passes=passes + 1,
            tokens=tf.where(here, new[:, tf.newaxis], tokens),
            counts=counts + tf.cast(is_next, tf.int32),
            read=read + tf.where(drafts, ahead + 1, 0),
            values=attend.caches,
        )

    def continues(loop: _Loop) -> tf.Tensor:
        return (loop.passes < MAX_PASSES) & tf.reduce_any(loop.counts < wanted)

    start = _Loop(
        passes=tf.constant(0),
        tokens=proposals.tokens,
        counts=tf.zeros_like(wanted),
        # The newest token is always read, for what follows it.
        read=tf.where(proposals.reads, tf.minimum(state.drafted, lengths - 1), state.drafted),
        values=values,
    )
    end = _Loop(
        *tf.while_loop(
            lambda *loop: continues(_Loop(*loop)),
            lambda *loop: propose(_Loop(*loop)),
            start,
        )
    )
    found = proposals._replace(
        tokens=end.tokens, counts=proposals.counts + end.counts, drafted=end.counts > 0
    )
    return found, state._replace(drafted=end.read), end.values


def _sequence(state: State, proposed: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
    """The tokens of each row from `start` [R] on, and then its proposals: [R, 1 + K]."""
    positions = start[:, tf.newaxis] + tf.range(1 + MAX_PROPOSALS)
    tokens = state.tokens[:, 0]
    there = tf.gather(tokens, tf.minimum(positions, tokens.shape[1] - 1), batch_dims=1)
    place = tf.clip_by_value(positions - state.lengths[:, tf.newaxis], 0, MAX_PROPOSALS - 1)
    new = tf.gather(proposed, place, batch_dims=1)
    return tf.where(positions < state.lengths[:, tf.newaxis], there, new)


def _known(family: Family, tokens: tf.Tensor) -> tf.Tensor:
    """The tokens, with another one in place of each that the draft model has no embedding for.

    Vocabularies are equal, but may be followed by a different number of unused embeddings.
    """
    return tf.minimum(tokens, family.vocab_size - 1)

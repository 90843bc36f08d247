"""Exact speculation: a step checks proposed tokens, and a row accepts those that it chooses itself.

The next token depends only on the request, the tokens before it and its position, because noise is
drawn from the seed and the position. So if the row chooses the proposed token, the logits after it
are right; otherwise they are not used. No proposal changes which tokens a row gets, whether it
samples or not.

Proposals come from the row's own sequence: they are the tokens that followed when its newest tokens
last occurred there. If these have not occurred before, a draft model may propose (`drafting`).

One forward pass reads the newest token of each row and the proposals after it (`step_places`). The
rows then choose their tokens one by one, with all their options, until one differs from its
proposal.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from shaperouter_service.decoding.attention import CheckAttention
from shaperouter_service.decoding.state import State
from shaperouter_service.decoding.step_places import (
    MAX_PROPOSALS,
    StepPlaces,
    place_count,
    within_places,
)
from shaperouter_service.models import Family, Weights

# Number of newest tokens that must have occurred together before.
MIN_MATCHED = 2

# Longest repetition that is compared. Among repetitions of this length or more, the newest counts.
_MAX_MATCHED = 16


# A call stops asking a source once it has checked at least this many of its proposals, and those of
# three steps, and accepted less than the share. The worker adjusts limits only between calls. A
# stricter rule also stops sources that pay: chance alone may reject what the first steps propose.
_MIN_TRIED, _MIN_TRIED_STEPS = 4, 3
_MIN_ACCEPTED_SHARE = 0.125


class Proposals(NamedTuple):
    """Tokens proposed for R rows.

    Attributes:
        reads: [R] bool, rows that need logits, whether or not something is proposed for them.
        tokens: [R, K] int32.
        counts: [R] int32, how many of them to check, from the first.
        drafted: [R] bool, whether they are those of a draft model.
    """

    reads: Any
    tokens: Any
    counts: Any
    drafted: Any


class BySource(NamedTuple):
    """Numbers of proposals by where these come from: of R rows, [R] int32 each, or sums.

    Attributes:
        ngram: Those from a row's own sequence.
        draft: Those of the draft model.
    """

    ngram: Any
    draft: Any

    @classmethod
    def specs(cls, rows: int) -> "BySource":
        """Static shapes of the numbers of R rows."""
        return cls(*[tf.TensorSpec([rows], tf.int32)] * 2)

    @classmethod
    def of(cls, counts: tf.Tensor, drafted: tf.Tensor) -> "BySource":
        """Splits the numbers of rows, which are those of the draft model where `drafted` [R]."""
        return cls(tf.where(drafted, 0, counts), tf.where(drafted, counts, 0))

    def plus(self, other: "BySource") -> "BySource":
        """Returns the sums."""
        return BySource(self.ngram + other.ngram, self.draft + other.draft)

    def of_row(self, row: int) -> "BySource":
        """The numbers of one row, on the host."""
        return BySource(int(self.ngram[row]), int(self.draft[row]))


class Checked(NamedTuple):
    """Logits of a step that checked proposals, and how far each row has used them.

    Attributes:
        logits: [M, V] float32, after the token of each place.
        proposed: [R, K] int32, the proposals.
        firsts: [R] int32, the first place of each row.
        counts: [R] int32, places of each row.
        used: [R] int32, number of these that the row has used; all after a rejected proposal.
        drafted: [R] bool, see `Proposals`.
        proposed_tokens: Numbers of proposals so far in this call.
        accepted_tokens: Numbers of proposals accepted so far.
    """

    logits: Any
    proposed: Any
    firsts: Any
    counts: Any
    used: Any
    drafted: Any
    proposed_tokens: BySource
    accepted_tokens: BySource

    @classmethod
    def none(cls, rows: int, vocab_size: int) -> "Checked":
        """The value at the beginning of a call: no logits."""
        zeros = tf.zeros([rows], tf.int32)
        return cls(
            logits=tf.zeros([place_count(rows), vocab_size]),
            proposed=tf.zeros([rows, MAX_PROPOSALS], tf.int32),
            firsts=zeros,
            counts=zeros,
            used=zeros,
            drafted=tf.zeros([rows], tf.bool),
            proposed_tokens=BySource(zeros, zeros),
            accepted_tokens=BySource(zeros, zeros),
        )

    def limits(self, limits: BySource) -> BySource:
        """Limits of the next step: 0 where a source's proposals in this call do not come.

        Args:
            limits: Maximum numbers of proposals of a step of this call.
        """

        def limit(limit: tf.Tensor, proposed: tf.Tensor, accepted: tf.Tensor) -> tf.Tensor:
            tried = proposed >= tf.maximum(_MIN_TRIED_STEPS * limit, _MIN_TRIED)
            share = _MIN_ACCEPTED_SHARE * tf.cast(proposed, tf.float32)
            fails = tried & (tf.cast(accepted, tf.float32) < share)
            return tf.where(fails, 0, limit)

        numbers = zip(limits, self.proposed_tokens, self.accepted_tokens, strict=True)
        return BySource(*[limit(*of_source) for of_source in numbers])

    @property
    def is_left(self) -> tf.Tensor:
        """[R] bool, which rows have logits for their next token."""
        return self.used < self.counts

    @property
    def next_logits(self) -> tf.Tensor:
        """[R, 1, V] float32, the logits for the next tokens; undefined for rows without any."""
        place = tf.minimum(self.firsts + self.used, self.logits.shape[0] - 1)
        return tf.gather(self.logits, place)[:, tf.newaxis]

    def next_logits_or(self, other: tf.Tensor, is_checked: tf.Tensor) -> tf.Tensor:
        """Returns [R, 1, V] float32: the next logits if `is_checked`, a bool; else `other`."""

        def read(index: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            # XLA would hoist what does not depend on the iteration.
            return index + 1, self._replace(used=self.used + index).next_logits

        # A loop of at most one iteration: XLA would compute both branches of a condition.
        _, logits = tf.while_loop(
            lambda index, _: index < tf.cast(is_checked, tf.int32), read, (tf.constant(0), other)
        )
        return logits

    def with_step(self, logits: tf.Tensor, places: StepPlaces, proposals: Proposals) -> "Checked":
        """Returns the value after a step over `places`, whose logits are [M, V]."""
        return Checked(
            logits=logits,
            proposed=proposals.tokens,
            firsts=places.firsts,
            counts=places.counts,
            used=tf.zeros_like(self.used),
            drafted=proposals.drafted,
            proposed_tokens=self.proposed_tokens.plus(
                BySource.of(proposals.counts, proposals.drafted)
            ),
            accepted_tokens=self.accepted_tokens,
        )

    def after(self, new: tf.Tensor, advanced: tf.Tensor) -> tuple["Checked", tf.Tensor]:
        """Compares new tokens with their proposals.

        Args:
            new: [R] int32, the tokens that rows have chosen.
            advanced: [R] bool, the rows that have chosen one.

        Returns:
            The value after the tokens, and [R] bool, whether each was proposed.
        """
        advanced &= self.is_left
        # There is no proposal after the last place of a row.
        place = tf.minimum(self.used, MAX_PROPOSALS - 1)
        came = tf.gather(self.proposed, place, batch_dims=1) == new
        came &= advanced & (self.used + 1 < self.counts)
        used = tf.where(came, self.used + 1, tf.where(advanced, self.counts, self.used))
        accepted = self.accepted_tokens.plus(BySource.of(tf.cast(came, tf.int32), self.drafted))
        return self._replace(used=used, accepted_tokens=accepted), came


def propose(state: State, reads: tf.Tensor, limits: tf.Tensor) -> Proposals:
    """Proposes the tokens that followed when the newest tokens occurred before.

    The longest repetition counts, and among equally long ones the newest. Beyond the end of the
    sequence, the proposals repeat what followed.

    Args:
        state: State of R rows without beam search; its `matches` must be valid.
        reads: [R] bool, rows that need logits.
        limits: [R] int32, maximum number of proposals.
    """
    tokens, matches = tf.squeeze(state.tokens, 1), tf.squeeze(state.matches, 1)
    size, lengths = tokens.shape[1], state.lengths
    positions = tf.range(size)
    rank = tf.minimum(matches, _MAX_MATCHED) * size + positions
    rank = tf.where(positions < lengths[:, tf.newaxis], rank, -1)
    follows = tf.argmax(rank, axis=-1, output_type=tf.int32)  # [R]
    matched = tf.gather(matches, follows, batch_dims=1)
    period = tf.maximum(lengths - follows, 1)
    ahead = tf.range(MAX_PROPOSALS) % period[:, tf.newaxis]
    proposed = tf.gather(tokens, follows[:, tf.newaxis] + ahead, batch_dims=1)
    counts = tf.clip_by_value(limits, 0, MAX_PROPOSALS)
    counts = tf.where(reads & (matched >= MIN_MATCHED), counts, 0)
    # If the places do not suffice, later rows check fewer proposals, which changes no token.
    return Proposals(reads, proposed, within_places(counts), tf.zeros_like(reads))


def check(
    family: Family,
    weights: Weights,
    state: State,
    proposals: Proposals,
    *,
    values: list[tf.Tensor],
    checked: Checked,
) -> tuple[Checked, list[tf.Tensor]]:
    """Reads the newest tokens of rows with their proposals, if any row has proposals.

    Args:
        family: The model.
        weights: Its weights.
        state: State before the step.
        proposals: The proposals of R rows.
        values: The caches.
        checked: Logits of an earlier step; all of them must have been used.

    Returns:
        The logits, and the caches that include the tokens.
    """
    lengths = state.lengths

    def read(
        index: tf.Tensor, checked: Checked, values: list[tf.Tensor]
    ) -> tuple[tf.Tensor, Checked, list[tf.Tensor]]:
        places = StepPlaces.of(proposals.reads, proposals.counts)
        newest = tf.gather(state.tokens[:, 0], lengths - 1, batch_dims=1)
        tokens = tf.concat([newest[:, tf.newaxis], proposals.tokens], axis=1)  # [R, 1 + K]
        tokens = tf.gather_nd(tokens, tf.stack([places.rows, places.offsets], axis=-1))
        attend = CheckAttention(values, places, lengths)
        # Unused places, too, must have a position that the model knows.
        positions = tf.minimum(
            tf.gather(lengths, places.rows) - 1 + places.offsets, attend.length - 1
        )
        # This is the only iteration. XLA would hoist whatever does not depend on it.
        tokens, positions = tokens + index, positions + index
        needed = weights.for_rows(places.count)
        hidden = family.forward(needed, tokens[:, tf.newaxis], positions[:, tf.newaxis], attend)
        logits = family.logits(needed, hidden)[:, 0]  # [M, V]
        return index + 1, checked.with_step(logits, places, proposals), attend.caches

    # A loop of at most one iteration, not a condition; see `PrefillProgram`.
    iterations = tf.cast(tf.reduce_any(proposals.counts > 0), tf.int32)
    _, checked, values = tf.while_loop(
        lambda index, *_: index < iterations, read, (tf.constant(0), checked, values)
    )
    return checked, values

"""The state of requests in a batch, but for their keys and values: small, and on the host.

Between two calls of a graph it is NumPy arrays; a graph takes it and gives back the next.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from shaperouter_service.decoding.ngrams import extend_matches

# The score of what must never be chosen. Transformers uses -1e9 instead, and a real score can be
# lower: those of long hypotheses are, with a strongly negative length penalty.
LOWEST = -float("inf")


class Beams(NamedTuple):
    """What beam search knows besides the open hypotheses' tokens.

    Attributes:
        lineage: [R, B, T] bool, which positions of its row's cache belong to a hypothesis.
        scores: [R, B] float32, sums of log-probabilities of the open hypotheses, best first.
        logprobs: [R, B, N] float32, the model's log-probability of each of `State.tokens`.
        ended_tokens: [R, B, N] int32, the ended hypotheses, prompt first.
        ended_lengths: [R, B] int32, how many tokens they have.
        ended_scores: [R, B] float32, divided by a power of their lengths, best first; LOWEST where
            no hypothesis has ended.
        ended_logprobs: [R, B, N] float32.
        improvable: [R] bool, whether an open hypothesis may still beat an ended one.
    """

    lineage: Any
    scores: Any
    logprobs: Any
    ended_tokens: Any
    ended_lengths: Any
    ended_scores: Any
    ended_logprobs: Any
    improvable: Any

    @property
    def ended(self) -> Any:
        """[R, B] bool, whether an ended hypothesis is there."""
        return self.ended_scores > LOWEST


class SourceTokens(NamedTuple):
    """What sequences are compared with of their sources, for a model that reads texts.

    Attributes:
        tokens: [R, S] int32, the sources.
        matches: [R, B, S] int32, how many tokens just before each place equal the sequence's
            newest ones, one by one; see `ngrams`. Only right for requests that set
            `encoder_no_repeat_ngram_size`.
    """

    tokens: Any
    matches: Any

    def after(self, matches: tf.Tensor, new: tf.Tensor) -> "SourceTokens":
        """The same after new tokens [R, B] of hypotheses that had `matches`."""
        tokens = self.tokens[:, tf.newaxis]
        return self._replace(matches=extend_matches(matches, tokens, new))


class State(NamedTuple):
    """R requests of B sequences each, B being 1 without beam search.

    Attributes:
        tokens: [R, B, N] int32, the sequences so far, prompt first; N is `max_tokens`. The newest
            token's keys and values are not in the cache yet.
        matches: [R, B, N] int32, how many tokens just before each position equal the newest ones,
            one by one; see `ngrams`. Only right for requests that set `no_repeat_ngram_size`.
        lengths: [R] int32, how many tokens they have.
        prompt_lengths: [R] int32, how many of those are the prompt's.
        remaining: [R] int32, tokens still to be made at most; 0 where a row has ended or is free.
        beams: Empty where B is 1.
        source_lengths: [R] int32, positions of each row's source; empty without an encoder.
        source: The sources' tokens; empty unless an encoder reads tokens.
        no_speech: [R] float32, the probability that nobody speaks; empty of models that make no
            transcripts.
    """

    tokens: Any
    matches: Any
    lengths: Any
    prompt_lengths: Any
    remaining: Any
    beams: Beams | tuple[()]
    source_lengths: Any = ()
    source: SourceTokens | tuple[()] = ()
    no_speech: Any = ()

    @classmethod
    def specs(
        cls,
        *,
        rows: int,
        beams: int,
        length: int,
        max_length: int,
        source_length: int = 0,
        has_transcript: bool = False,
    ) -> "State":
        """The static shapes of a state whose cache has `length` positions, T, and its source S."""
        tokens = max_tokens(length, max_length)

        def spec(shape: Sequence[int], dtype: tf.DType) -> tf.TensorSpec:
            return tf.TensorSpec([rows, *shape], dtype)

        return cls(
            tokens=spec([beams, tokens], tf.int32),
            matches=spec([beams, tokens], tf.int32),
            lengths=spec([], tf.int32),
            prompt_lengths=spec([], tf.int32),
            remaining=spec([], tf.int32),
            beams=()
            if beams == 1
            else Beams(
                lineage=spec([beams, length], tf.bool),
                scores=spec([beams], tf.float32),
                logprobs=spec([beams, tokens], tf.float32),
                ended_tokens=spec([beams, tokens], tf.int32),
                ended_lengths=spec([beams], tf.int32),
                ended_scores=spec([beams], tf.float32),
                ended_logprobs=spec([beams, tokens], tf.float32),
                improvable=spec([], tf.bool),
            ),
            source_lengths=spec([], tf.int32) if source_length else (),
            source=SourceTokens(
                tokens=spec([source_length], tf.int32),
                matches=spec([beams, source_length], tf.int32),
            )
            if source_length and not has_transcript
            else (),
            no_speech=spec([], tf.float32) if has_transcript else (),
        )

    @classmethod
    def empty(cls, **dimensions: Any) -> "State":
        """A state of free rows; see `specs`."""
        zeros: State = tf.nest.map_structure(
            lambda spec: np.zeros(spec.shape, spec.dtype.as_numpy_dtype), cls.specs(**dimensions)
        )
        return zeros

    @property
    def has_source(self) -> bool:
        """Whether an encoder has read something for these requests.

        Their prompts are short, most often of one token. So prefill leaves a prompt's last token to
        the first step, as it does with the newest of a request that is continued, and has nothing
        to do for a prompt of one. Without a source it reads the whole prompt, and leaves logits.
        """
        return not isinstance(self.source_lengths, tuple)

    @property
    def prompt_positions(self) -> Any:
        """[R] int32, positions of each row's cache before those of its steps, which take B each."""
        return self.prompt_lengths - 1 if self.has_source else self.prompt_lengths

    @property
    def read_lengths(self) -> Any:
        """[R] int32, how many tokens of each row its prefill has to read.

        All of a prompt, but with a source; of a request that is continued all but the newest token,
        which the first step reads.
        """
        return self.lengths - (self.lengths > self.prompt_positions)

    def begin(
        self,
        row: int,
        prompt: Sequence[int],
        max_new_tokens: int,
        generated: Sequence[int] = (),
        source_length: int = 0,
    ) -> None:
        """Puts a request in a free row, before its prefill.

        Args:
            row: A free one.
            prompt: Its tokens.
            max_new_tokens: Tokens to make at most, those that there are already among them.
            generated: Tokens that there are already; none with beam search.
            source_length: Places of its source, if it has one.
        """
        self.tokens[row, :, : len(prompt)] = prompt
        self.lengths[row] = self.prompt_lengths[row] = len(prompt)
        if generated:
            self.lengths[row] += len(generated)
            self.tokens[row, :, len(prompt) : self.lengths[row]] = generated
        self.remaining[row] = max_new_tokens - len(generated)
        if self.has_source:
            self.source_lengths[row] = source_length
        if self.beams:
            self.beams.lineage[row, :, : self.prompt_positions[row]] = True
            # All hypotheses are the prompt: only the first counts.
            self.beams.scores[row] = LOWEST
            self.beams.scores[row, 0] = 0.0
            self.beams.ended_lengths[row] = len(prompt)
            self.beams.ended_scores[row] = LOWEST
            self.beams.improvable[row] = True


def max_tokens(length: int, max_length: int) -> int:
    """N, tokens of a sequence whose cache has `length` positions: the newest token needs none."""
    return min(length + 1, max_length)

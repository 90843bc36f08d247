"""State of the requests of a batch, except for their keys and values: small, and on the host.

Between two calls of a graph the state is NumPy arrays. A graph takes a state and returns the next.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from shaperouter_service.decoding.hypotheses import per_hypothesis
from shaperouter_service.decoding.ngrams import extend_matches

# Score of what must never be chosen. Transformers uses -1e9, but real scores can be lower: those of
# long hypotheses are, with a strongly negative length penalty.
LOWEST = -float("inf")


class Beams(NamedTuple):
    """State of beam search, except for the tokens of the open hypotheses.

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
        """[R, B] bool, true where there is an ended hypothesis."""
        return self.ended_scores > LOWEST


class SourceTokens(NamedTuple):
    """Tokens of the sources that sequences must not repeat, for a model that reads text.

    Attributes:
        tokens: [R, S] int32, the sources.
        matches: [R, B, S] int32, how many tokens just before each position equal the sequence's
            newest ones, one by one; see `ngrams`. Valid only for requests that set
            `encoder_no_repeat_ngram_size`.
    """

    tokens: Any
    matches: Any

    def after(self, matches: tf.Tensor, new: tf.Tensor) -> "SourceTokens":
        """Returns the state after new tokens [R, B] of hypotheses that had `matches`."""
        tokens = self.tokens[:, tf.newaxis]
        return self._replace(matches=extend_matches(matches, tokens, new))

    def per_hypothesis(self, beams: int) -> "SourceTokens":
        """Repeats each of the R sources for B hypotheses: [R * B, S] each."""
        matches = tf.reshape(self.matches, [-1, self.tokens.shape[1]])
        return SourceTokens(tokens=per_hypothesis(self.tokens, beams), matches=matches)


class State(NamedTuple):
    """R requests of B sequences each, B being 1 without beam search.

    Attributes:
        tokens: [R, B, N] int32, the sequences so far, prompt first; N is `max_tokens`. The newest
            token's keys and values are not in the cache yet.
        matches: [R, B, N] int32, how many tokens just before each position equal the newest ones,
            one by one; see `ngrams`. With beam search or a source, valid only for requests that set
            `no_repeat_ngram_size`.
        lengths: [R] int32, number of tokens in each sequence.
        prompt_lengths: [R] int32, number of these that belong to the prompt.
        remaining: [R] int32, maximum number of further tokens; 0 where a row has ended or is free.
        beams: State of beam search; empty where B is 1.
        source_lengths: [R] int32, positions of each row's source; empty without an encoder.
        source: The sources' tokens; empty unless an encoder reads tokens.
        no_speech: [R] float32, the probability that nobody speaks; empty for models that do not
            transcribe.
        drafted: [R] int32, number of tokens, from the first, that the draft model has read; empty
            without one, and with beam search.
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
    drafted: Any = ()

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
        has_draft: bool = False,
    ) -> "State":
        """Static shapes of a state whose cache has T = `length` positions and S for its source."""
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
            drafted=spec([], tf.int32) if has_draft and beams == 1 else (),
        )

    @classmethod
    def empty(cls, **dimensions: Any) -> "State":
        """Returns a state of free rows; see `specs`."""
        zeros: State = tf.nest.map_structure(
            lambda spec: np.zeros(spec.shape, spec.dtype.as_numpy_dtype), cls.specs(**dimensions)
        )
        return zeros

    @property
    def has_source(self) -> bool:
        """Whether these requests have a source, which an encoder reads.

        With a source, prompts are short, usually one token. So prefill leaves the last token of a
        prompt to the first step, as it leaves the newest token of a continued request, and a prompt
        of one token needs no prefill. Without a source, prefill reads the whole prompt and leaves
        its logits.
        """
        return not isinstance(self.source_lengths, tuple)

    @property
    def has_draft(self) -> bool:
        """Whether a draft model proposes tokens of these requests."""
        return not isinstance(self.drafted, tuple)

    @property
    def prompt_positions(self) -> Any:
        """[R] int32, cache positions of each row before its steps, which take B positions each."""
        return self.prompt_lengths - 1 if self.has_source else self.prompt_lengths

    @property
    def read_lengths(self) -> Any:
        """[R] int32, number of tokens that prefill reads in each row.

        These are all tokens of a new prompt without a source. With a source, and for a continued
        request, they are all but the newest token, which the first step reads.
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
            row: A free row.
            prompt: Tokens of the prompt.
            max_new_tokens: Maximum number of generated tokens, including `generated`.
            generated: Tokens already generated; none with beam search.
            source_length: Positions of the source; 0 without one.
        """
        self.tokens[row, :, : len(prompt)] = prompt
        self.lengths[row] = self.prompt_lengths[row] = len(prompt)
        if generated:
            self.lengths[row] += len(generated)
            self.tokens[row, :, len(prompt) : self.lengths[row]] = generated
        self.remaining[row] = max_new_tokens - len(generated)
        if self.has_draft:
            self.drafted[row] = self.read_lengths[row]
        if self.has_source:
            self.source_lengths[row] = source_length
        if self.beams:
            self.beams.lineage[row, :, : self.prompt_positions[row]] = True
            # All hypotheses equal the prompt, so only the first one counts.
            self.beams.scores[row] = LOWEST
            self.beams.scores[row, 0] = 0.0
            self.beams.ended_lengths[row] = len(prompt)
            self.beams.ended_scores[row] = LOWEST
            self.beams.improvable[row] = True


def max_tokens(length: int, max_length: int) -> int:
    """Returns N, the tokens of a sequence in `length` positions: the newest token needs none."""
    return min(length + 1, max_length)

"""Generation options as tensors: a record of fixed size for each request, so that none retraces."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from shaperouter_service.generation.limits import (
    MAX_BEGIN_SUPPRESSED,
    MAX_BIAS_TOKENS,
    MAX_BIASES,
    MAX_EOS_TOKENS,
)

# Fills what is not used of lists of tokens; never equal to a token id.
NO_TOKEN = -1


class EarlyStopping(IntEnum):
    """When beam search stops; see the message of that name."""

    HEURISTIC = 0
    FIRST = 1
    NEVER = 2


class TranscriptRules(NamedTuple):
    """The rules of R transcripts, one row each; see `timestamps`.

    Attributes:
        first_timestamp: [R] int32, the id of 0 s, whose predecessor says that there are no
            timestamps; all ids from it on are timestamps. NO_TOKEN, and no rule about timestamps
            applies.
        last_initial_timestamp: [R] int32, the largest id that may be the first token.
        begin_suppressed: [R, MAX_BEGIN_SUPPRESSED] int32, ids that may not be the first token,
            filled with NO_TOKEN.
        first_token: [R, 2] int32, the least and the largest id that the first token may be;
            NO_TOKEN, and it may be any.
        no_speech_token: [R] int32, the id whose probability is that nobody speaks; NO_TOKEN, and it
            is not told. See `no_speech`.
        no_speech_place: [R] int32, the place of the token that it would follow.
    """

    first_timestamp: Any
    last_initial_timestamp: Any
    begin_suppressed: Any
    first_token: Any
    no_speech_token: Any
    no_speech_place: Any

    @classmethod
    def of(
        cls,
        *,
        first_timestamp: int = NO_TOKEN,
        last_initial_timestamp: int = NO_TOKEN,
        begin_suppressed: Sequence[int] = (),
        first_token: tuple[int, int] = (NO_TOKEN, NO_TOKEN),
        no_speech_token: int = NO_TOKEN,
        no_speech_place: int = 0,
    ) -> "TranscriptRules":
        """The rules of one transcript, R = 1, as NumPy arrays; by default there are none."""
        suppressed = np.full([1, MAX_BEGIN_SUPPRESSED], NO_TOKEN, np.int32)
        suppressed[0, : len(begin_suppressed)] = begin_suppressed
        return cls(
            first_timestamp=np.array([first_timestamp], np.int32),
            last_initial_timestamp=np.array([last_initial_timestamp], np.int32),
            begin_suppressed=suppressed,
            first_token=np.array([first_token], np.int32),
            no_speech_token=np.array([no_speech_token], np.int32),
            no_speech_place=np.array([no_speech_place], np.int32),
        )


class Options(NamedTuple):
    """The options of R requests, one row each; names and meanings are those of the messages.

    Attributes:
        max_new_tokens: [R] int32, at least 1.
        min_new_tokens: [R] int32.
        eos_token_ids: [R, MAX_EOS_TOKENS] int32, filled with NO_TOKEN.
        do_sample: [R] bool.
        seed: [R, 2] uint32, the low and the high half.
        temperature: [R] float32, above 0.
        top_k: [R] int32; 0 is all.
        top_p: [R] float32; 1 is all.
        min_p: [R] float32; 0 is all.
        typical_p: [R] float32; 1 is all.
        repetition_penalty: [R] float32; 1 is none.
        no_repeat_ngram_size: [R] int32; 0 is no limit.
        biased_tokens: [R, MAX_BIASES, MAX_BIAS_TOKENS] int32, each run of tokens at the end of its
            row, filled with NO_TOKEN.
        biases: [R, MAX_BIASES] float32, added to the logit of a run's last token where the others
            precede it; minus infinity bans.
        logprobs: [R] int32, how many likeliest tokens to report; below 0, report nothing. Of a
            transcript they are told as its rules and penalties leave them.
        num_beams: [R] int32.
        length_penalty: [R] float32.
        early_stopping: [R] int32, an EarlyStopping.
        transcript: The rules of transcripts; empty of models that make none.
    """

    max_new_tokens: Any
    min_new_tokens: Any
    eos_token_ids: Any
    do_sample: Any
    seed: Any
    temperature: Any
    top_k: Any
    top_p: Any
    min_p: Any
    typical_p: Any
    repetition_penalty: Any
    no_repeat_ngram_size: Any
    biased_tokens: Any
    biases: Any
    logprobs: Any
    num_beams: Any
    length_penalty: Any
    early_stopping: Any
    transcript: TranscriptRules | tuple[()] = ()

    @classmethod
    def of(
        cls,
        *,
        max_new_tokens: int,
        min_new_tokens: int = 0,
        eos_token_ids: Sequence[int] = (),
        do_sample: bool = False,
        seed: int = 0,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        typical_p: float = 1.0,
        repetition_penalty: float = 1.0,
        no_repeat_ngram_size: int = 0,
        biases: Sequence[tuple[Sequence[int], float]] = (),
        logprobs: int | None = None,
        num_beams: int = 1,
        length_penalty: float = 1.0,
        early_stopping: EarlyStopping = EarlyStopping.HEURISTIC,
        transcript: TranscriptRules | tuple[()] = (),
    ) -> "Options":
        """The record of one request, R = 1, as NumPy arrays; values are validated before."""
        eos = np.full([1, MAX_EOS_TOKENS], NO_TOKEN, np.int32)
        eos[0, : len(eos_token_ids)] = eos_token_ids
        biased_tokens = np.full([1, MAX_BIASES, MAX_BIAS_TOKENS], NO_TOKEN, np.int32)
        bias_values = np.zeros([1, MAX_BIASES], np.float32)
        for index, (token_ids, bias) in enumerate(biases):
            biased_tokens[0, index, MAX_BIAS_TOKENS - len(token_ids) :] = token_ids
            bias_values[0, index] = bias
        return cls(
            max_new_tokens=np.array([max_new_tokens], np.int32),
            min_new_tokens=np.array([min_new_tokens], np.int32),
            eos_token_ids=eos,
            do_sample=np.array([do_sample]),
            seed=np.array([[seed & 0xFFFFFFFF, seed >> 32]], np.uint32),
            temperature=np.array([temperature], np.float32),
            top_k=np.array([top_k], np.int32),
            top_p=np.array([top_p], np.float32),
            min_p=np.array([min_p], np.float32),
            typical_p=np.array([typical_p], np.float32),
            repetition_penalty=np.array([repetition_penalty], np.float32),
            no_repeat_ngram_size=np.array([no_repeat_ngram_size], np.int32),
            biased_tokens=biased_tokens,
            biases=bias_values,
            logprobs=np.array([-1 if logprobs is None else logprobs], np.int32),
            num_beams=np.array([num_beams], np.int32),
            length_penalty=np.array([length_penalty], np.float32),
            early_stopping=np.array([early_stopping], np.int32),
            transcript=transcript,
        )

    @classmethod
    def nobody(cls, *, has_transcript: bool = False) -> "Options":
        """The record of a row that no request has.

        Args:
            has_transcript: Whether the model makes transcripts.
        """
        return cls.of(max_new_tokens=1, transcript=TranscriptRules.of() if has_transcript else ())

    @classmethod
    def specs(cls, rows: int, *, has_transcript: bool = False) -> "Options":
        """The static shapes of a record of `rows` rows."""
        specs: Options = tf.nest.map_structure(
            lambda field: tf.TensorSpec([rows, *field.shape[1:]], tf.as_dtype(field.dtype)),
            cls.nobody(has_transcript=has_transcript),
        )
        return specs

    def repeat(self, beams: int) -> "Options":
        """The record in which each of the R rows comes `beams` times: [R * B]."""
        if beams == 1:
            return self
        repeated: Options = tf.nest.map_structure(lambda field: tf.repeat(field, beams, 0), self)
        return repeated

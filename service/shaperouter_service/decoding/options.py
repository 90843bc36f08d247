"""Generation options as tensors: a record of fixed size for each request, so that none retraces."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from shaperouter_service.generation.limits import (
    MAX_BEGIN_SUPPRESSED,
    MAX_BIAS_TOKENS,
    MAX_BIASES,
)
from shaperouter_service.generation.option import NO_TOKEN, Kind
from shaperouter_service.generation.table import OPTIONS

# The options that are fields of a record. Lists of tokens are filled up with NO_TOKEN, which also
# stands for a token that is not given, and -1 for a number.
ON_DEVICE = {name: option for name, option in OPTIONS.items() if option.on_device}
_DTYPES = {Kind.FLAG: np.bool_, Kind.NUMBER: np.float32, Kind.SEED: np.uint32}


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


def _record(*fields: str) -> Any:
    return NamedTuple("_Record", [(field, Any) for field in fields])


_Record: Any = _record(*ON_DEVICE, "biased_tokens", "biases", "transcript")


class Options(_Record):
    """The options of R requests, one row each.

    Attributes:
        ...: Those of `ON_DEVICE`, by name: [R] int32, float32 or bool, [R, `max_items`] int32 of
            tokens, and [R, 2] uint32 of the seed, its low and its high half. Values below 0 of
            `logprobs` report nothing; of a transcript, they are told as its rules and penalties
            leave them.
        biased_tokens: [R, MAX_BIASES, MAX_BIAS_TOKENS] int32, each run of tokens at the end of its
            row, filled with NO_TOKEN.
        biases: [R, MAX_BIASES] float32, added to the logit of a run's last token where the others
            precede it; minus infinity bans.
        transcript: The rules of transcripts; empty of models that make none.
    """

    __slots__ = ()

    @classmethod
    def of(
        cls,
        *,
        biases: Sequence[tuple[Sequence[int], float]] = (),
        transcript: TranscriptRules | tuple[()] = (),
        **options: Any,
    ) -> "Options":
        """The record of one request, R = 1, as NumPy arrays; values are validated before.

        Args:
            biases: Runs of tokens, and what is added to the logit of each one's last.
            transcript: The rules of a transcript.
            **options: Options by name; those that are left out have no effect.

        Raises:
            TypeError: There is no such option.
        """
        if unknown := options.keys() - ON_DEVICE.keys():
            raise TypeError(f"no options on the device: {', '.join(sorted(unknown))}")
        biased_tokens = np.full([1, MAX_BIASES, MAX_BIAS_TOKENS], NO_TOKEN, np.int32)
        bias_values = np.zeros([1, MAX_BIASES], np.float32)
        for index, (token_ids, bias) in enumerate(biases):
            biased_tokens[0, index, MAX_BIAS_TOKENS - len(token_ids) :] = token_ids
            bias_values[0, index] = bias
        return cls(
            **{name: _encoded(name, options.get(name)) for name in ON_DEVICE},
            biased_tokens=biased_tokens,
            biases=bias_values,
            transcript=transcript,
        )

    @classmethod
    def nobody(cls, *, has_transcript: bool = False) -> "Options":
        """The record of a row that no request has.

        Args:
            has_transcript: Whether the model makes transcripts.
        """
        return cls.of(transcript=TranscriptRules.of() if has_transcript else ())

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


def _encoded(name: str, value: Any) -> np.ndarray:
    """The field [1, ...] of an option; None is the value without an effect."""
    option = ON_DEVICE[name]
    if value is None:
        value = option.neutral
    match option.kind:
        case Kind.TOKENS:
            tokens = np.full([1, option.max_items], NO_TOKEN, np.int32)
            tokens[0, : len(value)] = value
            return tokens
        case Kind.SEED:
            value = [value & 0xFFFFFFFF, value >> 32]
    return np.array([value], _DTYPES.get(option.kind, np.int32))

"""Generation options as tensors: fixed-size records, so that no option causes a retrace."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from shaperouter_service.decoding.hypotheses import per_hypothesis
from shaperouter_service.generation.limits import (
    MAX_BEGIN_SUPPRESSED,
    MAX_BIAS_TOKENS,
    MAX_BIASES,
)
from shaperouter_service.generation.option import NO_TOKEN, Kind
from shaperouter_service.generation.option_table import OPTIONS

# The options that are fields of a record. NO_TOKEN pads lists of tokens and stands for a token that
# is not set; -1 stands for a number that is not set.
ON_DEVICE = {name: option for name, option in OPTIONS.items() if option.on_device}
_DTYPES = {Kind.FLAG: np.bool_, Kind.NUMBER: np.float32, Kind.SEED: np.uint32}


class TranscriptRules(NamedTuple):
    """The rules of R transcripts, one row each; see `timestamps`.

    Attributes:
        first_timestamp: [R] int32, the id of 0 s. It and all larger ids are timestamps; the id
            before it means "no timestamps". With NO_TOKEN, no rule about timestamps applies.
        last_initial_timestamp: [R] int32, the largest id that may be the first token.
        begin_suppressed: [R, MAX_BEGIN_SUPPRESSED] int32, ids that may not be the first token,
            filled with NO_TOKEN.
        first_token: [R, 2] int32, the smallest and the largest id that the first token may have;
            with NO_TOKEN it may be any token.
        no_speech_token: [R] int32, the id whose probability is the probability that nobody speaks;
            with NO_TOKEN it is not recorded. See `no_speech`.
        no_speech_position: [R] int32, position of the token that it would follow.
    """

    first_timestamp: Any
    last_initial_timestamp: Any
    begin_suppressed: Any
    first_token: Any
    no_speech_token: Any
    no_speech_position: Any

    @classmethod
    def of(
        cls,
        *,
        first_timestamp: int = NO_TOKEN,
        last_initial_timestamp: int = NO_TOKEN,
        begin_suppressed: Sequence[int] = (),
        first_token: tuple[int, int] = (NO_TOKEN, NO_TOKEN),
        no_speech_token: int = NO_TOKEN,
        no_speech_position: int = 0,
    ) -> "TranscriptRules":
        """Returns the rules of one transcript, R = 1, as NumPy arrays; by default no rules."""
        suppressed = np.full([1, MAX_BEGIN_SUPPRESSED], NO_TOKEN, np.int32)
        suppressed[0, : len(begin_suppressed)] = begin_suppressed
        return cls(
            first_timestamp=np.array([first_timestamp], np.int32),
            last_initial_timestamp=np.array([last_initial_timestamp], np.int32),
            begin_suppressed=suppressed,
            first_token=np.array([first_token], np.int32),
            no_speech_token=np.array([no_speech_token], np.int32),
            no_speech_position=np.array([no_speech_position], np.int32),
        )


def _record(*fields: str) -> Any:
    return NamedTuple("_Record", [(field, Any) for field in fields])


_Record: Any = _record(*ON_DEVICE, "biased_tokens", "biases", "transcript")


class Options(_Record):
    """The options of R requests, one row each.

    Attributes:
        ...: Fields of `ON_DEVICE`, by name: [R] int32, float32 or bool; [R, `max_items`] int32 for
            lists of tokens; [R, 2] uint32 for the seed, its low half first. A negative `logprobs`
            reports nothing; the log-probabilities of a transcript are reported after its rules and
            penalties.
        biased_tokens: [R, MAX_BIASES, MAX_BIAS_TOKENS] int32, each run of tokens at the end of its
            row, filled with NO_TOKEN.
        biases: [R, MAX_BIASES] float32, added to the logit of a run's last token where the others
            precede it; minus infinity bans the token.
        transcript: The rules of transcripts; empty for models that do not transcribe.
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
        """Returns the record of one request, R = 1, as NumPy arrays; values are already valid.

        Args:
            biases: Runs of tokens, each with the bias on the logit of its last token.
            transcript: The rules of a transcript.
            **options: Options by name; omitted ones have no effect.

        Raises:
            TypeError: An option does not exist.
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
    def neutral(cls, *, has_transcript: bool = False) -> "Options":
        """Returns the record of a free row.

        Args:
            has_transcript: Whether the model transcribes.
        """
        return cls.of(transcript=TranscriptRules.of() if has_transcript else ())

    @classmethod
    def specs(cls, rows: int, *, has_transcript: bool = False) -> "Options":
        """Static shapes of a record of `rows` rows."""
        specs: Options = tf.nest.map_structure(
            lambda field: tf.TensorSpec([rows, *field.shape[1:]], tf.as_dtype(field.dtype)),
            cls.neutral(has_transcript=has_transcript),
        )
        return specs

    def per_hypothesis(self, beams: int) -> "Options":
        """Repeats each of the R rows `beams` times: [R * B]."""
        repeated: Options = tf.nest.map_structure(lambda field: per_hypothesis(field, beams), self)
        return repeated


def _encoded(name: str, value: Any) -> np.ndarray:
    """Encodes an option as its field [1, ...]; None is the value without an effect."""
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

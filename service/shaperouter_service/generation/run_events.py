"""Events of a run on a worker: stalls, log-probabilities, new tokens and the end."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from shaperouter_service.routing.signatures import Signature


class FinishReason(Enum):
    """Why a sequence ended."""

    EOS = auto()
    LENGTH = auto()
    STOP = auto()


@dataclass(frozen=True, slots=True)
class Stalled:
    """The run waits for this graph to be compiled."""

    signature: Signature


@dataclass(frozen=True, slots=True)
class Isolated:
    """The run has the device to itself until its next event."""


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities of one token, new or of the prompt.

    Attributes:
        token_id: The token.
        logprob: Its log-probability.
        top: The likeliest tokens with theirs, as many as requested.
    """

    token_id: int
    logprob: float
    top: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InputUsage:
    """How much of a run's prompt and source a worker read, and how much it had cached.

    Attributes:
        cached_prompt_tokens: Tokens of the prompt that the worker had kept and did not read.
        padded_prompt_tokens: Tokens that the prefill graph computed, including padding.
        padded_source_tokens: Positions that the encode graph computed, including padding.
    """

    cached_prompt_tokens: int = 0
    padded_prompt_tokens: int = 0
    padded_source_tokens: int = 0


@dataclass(frozen=True, slots=True)
class NewTokens:
    """The run has new tokens.

    Attributes:
        token_ids: The tokens.
        logprobs: Empty, or one entry for each.
        input_usage: What the worker read before the first tokens; None with later ones, and if the
            worker is of a version that does not say.
    """

    token_ids: Sequence[int]
    logprobs: Sequence[TokenLogprobs] = ()
    input_usage: InputUsage | None = None


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """Log-probabilities of the next tokens of the prompt; the first are of its second token."""

    logprobs: Sequence[TokenLogprobs]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """A sequence that beam search found; `logprobs` is empty or has one entry for each token."""

    token_ids: Sequence[int]
    finish_reason: FinishReason
    score: float
    logprobs: Sequence[TokenLogprobs] = ()


@dataclass(frozen=True, slots=True)
class AlignedTokens:
    """The times of the N tokens that follow the prefix of a transcript.

    Attributes:
        positions: N + 1 positions in the window, of 0.02 s each: the start of each token, and the
            end of the last.
        logprobs: Log-probabilities of the N tokens, among the tokens of text only.
    """

    positions: Sequence[int]
    logprobs: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphUse:
    """Calls of one graph.

    Attributes:
        asked: The tight cover.
        served: The graph that was called.
        calls: Number of calls.
        device_seconds: Device time of the calls.
    """

    asked: Signature
    served: Signature
    calls: int
    device_seconds: float

    def __add__(self, other: "GraphUse") -> "GraphUse":
        """Both uses of the same graph together."""
        return GraphUse(
            asked=self.asked,
            served=self.served,
            calls=self.calls + other.calls,
            device_seconds=self.device_seconds + other.device_seconds,
        )


def merge_uses(uses: Iterable[GraphUse]) -> list[GraphUse]:
    """Adds up the uses with the same asked and served signature."""
    merged: dict[tuple[Signature, Signature], GraphUse] = {}
    for use in uses:
        key = use.asked, use.served
        merged[key] = merged[key] + use if key in merged else use
    return list(merged.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimings:
    """Durations of a run's phases, in seconds.

    Attributes:
        queue_seconds: From the arrival at the worker until the run got a slot, without stalls.
        stall_seconds: Waiting for compilations.
        prefill_seconds: From the start of reading source and prompt to the first token, without
            stalls.
        decode_seconds: From the first token to the last, without stalls.
    """

    queue_seconds: float = 0.0
    stall_seconds: float = 0.0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCompletion:
    """The end of a run, as the worker that ended it measured it.

    Attributes:
        finish_reason: Why the run ended. With beam search, why the best hypothesis ended.
        timings: Durations of its phases.
        input_usage: What the worker read.
        graphs: The graphs that served it.
        hypotheses: Results of beam search, from best to worst.
        no_speech_probability: Probability that nobody speaks; None unless requested.
        aligned: The times of the tokens; None unless requested.
    """

    finish_reason: FinishReason
    timings: RunTimings = RunTimings()
    input_usage: InputUsage = InputUsage()
    graphs: Sequence[GraphUse] = ()
    hypotheses: Sequence[Hypothesis] = ()
    no_speech_probability: float | None = None
    aligned: AlignedTokens | None = None


RunEvent: TypeAlias = Stalled | Isolated | PromptLogprobs | NewTokens | RunCompletion

"""Events of a running generation, and its result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from shaperouter_service.conversation import MessagePart
from shaperouter_service.generation.run_events import (
    FinishReason,
    GraphUse,
    PromptLogprobs,
    RunTimings,
    Stalled,
    TokenLogprobs,
)
from shaperouter_service.routing.choice import Decision, WorkerOption


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizedInput:
    """What a generation begins with, once it is tokenized.

    Attributes:
        tokens: Number of tokens of the prompt, or of the source if there is one.
        is_source: Whether it is a source, which the text answers instead of continuing it.
        token_text: The text of a token by its id, of the revision that generates; empty without a
            tokenizer.
        token_bytes: The bytes of that text, also of a token that is part of a character; None if
            they are not known.
        decode: The text of several tokens, without special tokens; likewise.
        context: Tokens of the prompt's end that the new text depends on.
        echo: Text that each sequence begins with: the prompt, if that is requested.
    """

    tokens: int
    is_source: bool
    token_text: Callable[[int], str]
    token_bytes: Callable[[int], bytes | None]
    decode: Callable[[Sequence[int]], str]
    context: Sequence[int] = ()
    echo: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A piece of a sequence; all its pieces together are the sequence.

    Attributes:
        sequence: Number of the sequence.
        text: New text; empty while it could still be part of a stop string.
        token_ids: New tokens.
        logprobs: One entry for each token, if requested.
        parts: New parts of the message that it is, if messages are read.
        reasoning_tokens: How many of the tokens are reasoning, likewise.
    """

    sequence: int
    text: str
    token_ids: Sequence[int] = ()
    logprobs: Sequence[TokenLogprobs] = ()
    parts: Sequence[MessagePart] = ()
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceEnd:
    """The end of a sequence.

    Attributes:
        finish_reason: Why it ended.
        score: Score of beam search; None without.
    """

    finish_reason: FinishReason
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of a generation.

    Attributes:
        prompt_tokens: Tokens of the prompt.
        cached_prompt_tokens: Tokens of the prompt that no run read, because workers had cached
        them.
        padded_prompt_tokens: Tokens that prefill graphs computed, including padding.
        source_tokens: Tokens that the encoder read.
        padded_source_tokens: Positions that encode graphs computed, including padding.
        generated_tokens: Tokens of all sequences.
    """

    prompt_tokens: int
    cached_prompt_tokens: int = 0
    padded_prompt_tokens: int
    source_tokens: int
    padded_source_tokens: int
    generated_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Durations of a generation's phases, in seconds.

    Attributes:
        runs: Durations on workers, each the longest of any run.
        route_seconds: From its arrival until it was first sent to a worker.
        time_to_first_token_seconds: From its arrival to its first token.
        total_seconds: From its arrival to its end.
    """

    runs: RunTimings
    route_seconds: float
    time_to_first_token_seconds: float
    total_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """How a generation was served.

    Attributes:
        request_id: Id of the request.
        model: Name of the model.
        revision: Revision of the model; see `ServedModel`.
        seed: Seed of the random numbers.
        usage: Its tokens.
        timings: Durations of its phases.
        graphs: The graphs that served it.
        worker: The worker of its first run.
        routes: The routing decisions, if requested.
    """

    request_id: str
    model: str
    revision: str
    seed: int
    usage: Usage
    timings: Timings
    graphs: Sequence[GraphUse]
    worker: str
    routes: Sequence[Decision[WorkerOption]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The last event: all sequences have ended.

    Attributes:
        sequences: Their ends, in order.
        completion: How the request was served.
    """

    sequences: Sequence[SequenceEnd]
    completion: Completion


# All log-probabilities of the prompt come before the first delta.
GenerationEvent: TypeAlias = Stalled | PromptLogprobs | Delta | Completed


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedSequence:
    """A whole sequence; see `Delta` and `SequenceEnd`."""

    text: str
    token_ids: Sequence[int]
    logprobs: Sequence[TokenLogprobs]
    parts: Sequence[MessagePart]
    reasoning_tokens: int
    end: SequenceEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The result of a generation.

    Attributes:
        sequences: The sequences, in order.
        completion: How the request was served.
        prompt_logprobs: One for each token of the prompt but the first, if requested.
    """

    sequences: Sequence[GeneratedSequence]
    completion: Completion
    prompt_logprobs: Sequence[TokenLogprobs] = ()

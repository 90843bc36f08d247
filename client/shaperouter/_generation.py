"""The results of a generation, whole or piece by piece."""

import enum
from dataclasses import dataclass

from shaperouter._signature import Signature

_REPR_TEXT = 40  # characters of the text that repr() shows


class FinishReason(enum.StrEnum):
    """Why a sequence ended."""

    EOS = "eos"  # the model generated an end token
    LENGTH = "length"  # max_new_tokens was reached
    STOP = "stop"  # a stop string appeared
    UNKNOWN = "unknown"  # a reason that this version of the client does not know


@dataclass(frozen=True, kw_only=True)
class TokenLogprob:
    """A token and its log-probability.

    Attributes:
        token_id: The token.
        logprob: Natural logarithm of its probability.
    """

    token_id: int
    logprob: float


@dataclass(frozen=True, kw_only=True)
class TokenLogprobs:
    """Log-probabilities at one token, before penalties, bans and temperature.

    Attributes:
        chosen: The token that was generated, or that the prompt has.
        top: The likeliest tokens, likeliest first; as many as requested.
    """

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...]


@dataclass(frozen=True, kw_only=True)
class GeneratedSequence:
    """One generated sequence.

    Attributes:
        text: The new text, without special tokens. With `echo`, it follows the prompt. It keeps a
            space that separates it from the prompt's text; an answer to a conversation has none.
        token_ids: The new token ids, including the end token if there is one. With `echo`, they
            follow the prompt's.
        finish_reason: Why the sequence ended.
        score: For beam search, the sum of the log-probabilities, divided by the length to the power
            of `length_penalty`; otherwise None.
        logprobs: One for each new token if requested; otherwise empty.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    score: float | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Usage:
    """The token counts of a request.

    Attributes:
        prompt_tokens: Tokens of the prompt. If there is a source, tokens of the decoder's prompt
            with its start token.
        padded_prompt_tokens: Tokens that were computed for them, including padding.
        generated_tokens: New tokens of all returned sequences, including end tokens.
        source_tokens: Tokens of the source; 0 without one.
        padded_source_tokens: Tokens that were computed for them, including padding.
        cached_prompt_tokens: Tokens of the prompt that an earlier request had in common with it, so
            that they were not computed.
    """

    prompt_tokens: int
    padded_prompt_tokens: int
    generated_tokens: int
    source_tokens: int = 0
    padded_source_tokens: int = 0
    cached_prompt_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Where the time went, in seconds on the service's clock.

    Sampled sequences are generated side by side; each field is the longest time of any of them. If
    a stop string ended a sequence, its `queue_seconds` and `prefill_seconds` are unknown and 0.

    Attributes:
        route_seconds: From the request's arrival at the service until it was first sent to a
            worker: reading, tokenizing, and waiting for a worker that has loaded the model.
        queue_seconds: From the request's arrival at the worker until it got a slot.
        stall_seconds: Waiting for graphs to be traced and compiled.
        prefill_seconds: From the start of reading source and prompt to the first token, without
            stalls.
        decode_seconds: From the first token to the last, without stalls.
        time_to_first_token_seconds: From the request's arrival at the service to the first token.
        total_seconds: From the request's arrival at the service to the end.
    """

    route_seconds: float
    queue_seconds: float
    stall_seconds: float
    prefill_seconds: float
    decode_seconds: float
    time_to_first_token_seconds: float
    total_seconds: float


@dataclass(frozen=True, kw_only=True)
class GraphUse:
    """The calls of one graph for one request.

    Attributes:
        asked: The smallest signature that covered the request at that moment.
        served: The graph that ran; larger than `asked` if the request shared its lane or the tight
            graph was not ready.
        calls: Number of times it was called.
        device_seconds: Device time of those calls, in seconds, shared with the rest of the batch.
    """

    asked: Signature
    served: Signature
    calls: int
    device_seconds: float


@dataclass(frozen=True, kw_only=True)
class RouteOption:
    """An option to serve a request: a worker and graphs that cover it, with expected seconds.

    Attributes:
        worker: The worker.
        prefill: The graph that would read the prompt; None if there is only a source to read.
        decode: The graph that would decode; None for a call.
        queue_seconds: Waiting for requests that came earlier.
        stall_seconds: Waiting for graphs to be compiled or loaded.
        prefill_seconds: Reading source and prompt.
        decode_seconds: Decoding as many tokens as requested.
        total_seconds: The sum of the times above.
        encode: The graph that would read the source; None without one.
        call: The graph that would compute a call; None for a generation.
        call_seconds: Computing a call.
    """

    worker: str
    prefill: Signature | None
    decode: Signature | None
    queue_seconds: float
    stall_seconds: float
    prefill_seconds: float
    decode_seconds: float
    total_seconds: float
    encode: Signature | None = None
    call: Signature | None = None
    call_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Route:
    """How a run was routed: the options to serve it, with the expected time of each.

    Attributes:
        options: In order of expected end, soonest first; the first was taken.
    """

    options: tuple[RouteOption, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class Generation:
    """A complete generation; ``str()`` gives its text.

    Attributes:
        sequences: The generated sequences, at least one; those of beam search from best to worst.
        request_id: Id of the request; the service's logs have the same.
        model: Name of the model that served the request.
        seed: The seed used; giving it again gives the same tokens.
        usage: The token counts.
        timings: Where the time went.
        graphs: The graphs asked for and the graphs that served, in order of first use; unknown for
            sequences that a stop string ended.
        worker: The worker that ran the request; with several sequences, that of the first.
        routes: With `explain`, one route for each time that the router gave a run of the request to
            a worker, in order; otherwise empty.
        prompt_logprobs: One for each token of the prompt but the first if requested; otherwise
            empty. The chosen token of each is the prompt's own.
        revision: Revision of the model that served the request; see `Model.revision`.
    """

    sequences: tuple[GeneratedSequence, ...]
    request_id: str
    model: str
    seed: int
    usage: Usage
    timings: Timings
    graphs: tuple[GraphUse, ...]
    worker: str
    routes: tuple[Route, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    revision: str = ""

    @property
    def text(self) -> str:
        """Text of the first sequence."""
        return self.sequences[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Token ids of the first sequence."""
        return self.sequences[0].token_ids

    @property
    def finish_reason(self) -> FinishReason:
        """Why the first sequence ended."""
        return self.sequences[0].finish_reason

    def __str__(self) -> str:
        """The text of the first sequence."""
        return self.text

    def __repr__(self) -> str:
        """One short line, however long the text is."""
        text = self.text
        if len(text) > _REPR_TEXT:
            text = text[: _REPR_TEXT - 1] + "…"
        return (
            f"<Generation {text!r}: {len(self.token_ids)} tokens, {self.finish_reason}, "
            f"request {self.request_id}>"
        )


@dataclass(frozen=True, kw_only=True)
class Delta:
    """New tokens of a stream; ``str()`` gives their text.

    Attributes:
        text: Text that can no longer change. Empty while a character is split over tokens, or while
            a stop string may have begun. The joined texts of a sequence's deltas are its text.
        token_ids: The new token ids.
        sequence: The sequence that they belong to, from 0. Sampled sequences grow side by side;
            those of beam search arrive whole, at the end.
        logprobs: One for each new token if requested; otherwise empty.
    """

    text: str
    token_ids: tuple[int, ...]
    sequence: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()

    def __str__(self) -> str:
        """The text."""
        return self.text

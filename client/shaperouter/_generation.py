"""What a generation gives back, whole or piece by piece."""

import enum
from dataclasses import dataclass

from shaperouter._signature import Signature

_REPR_TEXT = 40  # characters of the text that repr() shows


class FinishReason(enum.StrEnum):
    """Why a sequence ended."""

    EOS = "eos"  # the model produced an end token
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
    """What the model thought of one new token, before penalties, bans and temperature.

    Attributes:
        chosen: The token that was generated.
        top: The likeliest tokens, from likely to unlikely; as many as were asked for.
    """

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...]


@dataclass(frozen=True, kw_only=True)
class GeneratedSequence:
    """One generated sequence.

    Attributes:
        text: The new text, without special tokens; after the prompt with `echo`.
        token_ids: The new token ids, with the end token if there is one; after the prompt's with
            `echo`.
        finish_reason: Why it ended.
        score: Of beam search: the sum of its log-probabilities over its length to the power of
            `length_penalty`; None otherwise.
        logprobs: One for each new token if they were asked for; empty otherwise.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    score: float | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens counted.

    Attributes:
        prompt_tokens: Tokens of the prompt; of the decoder's, with its start, if there is a source.
        padded_prompt_tokens: Tokens that were computed for them, padding included.
        generated_tokens: New tokens of all returned sequences, end tokens included.
        source_tokens: Tokens of the source; 0 without one.
        padded_source_tokens: Tokens that were computed for them, padding included.
    """

    prompt_tokens: int
    padded_prompt_tokens: int
    generated_tokens: int
    source_tokens: int = 0
    padded_source_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Where the time went, in seconds on the service's clock.

    Sequences that are sampled are made side by side: the longest time of them is told. Of a
    sequence that a stop string ended, `queue_seconds` and `prefill_seconds` are not known, and 0.

    Attributes:
        route_seconds: From the arrival at the service until the request was first sent to a worker:
            reading it, and waiting for a worker that has loaded its model.
        queue_seconds: From the arrival at the worker until a slot was free.
        stall_seconds: Waiting for graphs to be traced and compiled.
        prefill_seconds: From the start of reading source and prompt to the first token, stalls left
            out.
        decode_seconds: From the first token to the last, stalls left out.
        time_to_first_token_seconds: From the arrival at the service to the first token.
        total_seconds: From the arrival at the service to the end.
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
        served: The graph that ran; larger than `asked` when the request shared its lane or the
            tight graph was not ready.
        calls: Times it was called.
        device_seconds: Time the device spent in those calls, shared with the rest of the batch.
    """

    asked: Signature
    served: Signature
    calls: int
    device_seconds: float


@dataclass(frozen=True, kw_only=True)
class RouteOption:
    """A way to serve a run: a worker, and graphs that cover it. Times are expectations, in seconds.

    Attributes:
        worker: The worker.
        prefill: The graph that would read the prompt; None where there is nothing to read but a
            source.
        decode: The graph that would decode.
        queue_seconds: Waiting for requests that came before.
        stall_seconds: Waiting for graphs to be compiled or loaded.
        prefill_seconds: Reading source and prompt.
        decode_seconds: Decoding as many tokens as were asked for.
        total_seconds: All of it.
        encode: The graph that would read the source; None without one.
    """

    worker: str
    prefill: Signature | None
    decode: Signature
    queue_seconds: float
    stall_seconds: float
    prefill_seconds: float
    decode_seconds: float
    total_seconds: float
    encode: Signature | None = None


@dataclass(frozen=True, kw_only=True)
class Route:
    """How a run was routed: the ways there were to serve it, with what each was expected to take.

    Attributes:
        options: From the soonest to the latest expected end; the first was taken.
    """

    options: tuple[RouteOption, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class Generation:
    """A whole generation; ``str()`` gives its text.

    Attributes:
        sequences: The generated sequences, at least one; those of beam search from best to worst.
        request_id: Id of the request; also in the service's logs.
        model: Name of the model that served it.
        seed: Seed that was used: giving it again gives the same tokens.
        usage: Tokens counted.
        timings: Where the time went.
        graphs: Which graphs were asked for and which served, in order of first use; those of
            sequences that a stop string ended are not known.
        worker: The worker that ran it, or the first of its sequences.
        routes: With `explain`, how it was routed: one for each time that a run of it was given to a
            worker, in order; empty otherwise.
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
        """One short line, whatever the length of the text."""
        text = self.text
        if len(text) > _REPR_TEXT:
            text = text[: _REPR_TEXT - 1] + "…"
        return (
            f"<Generation {text!r}: {len(self.token_ids)} tokens, {self.finish_reason}, "
            f"request {self.request_id}>"
        )


@dataclass(frozen=True, kw_only=True)
class Delta:
    """Newly made tokens of a stream; ``str()`` gives their text.

    Attributes:
        text: Text that is now certain; empty while a character is still split over tokens, or
            while a stop string may be beginning. The texts of all deltas of a sequence, joined, are
            its text.
        token_ids: The new token ids.
        sequence: Which sequence they belong to, from 0. Those that are sampled grow side by side,
            those of beam search come whole, at the end.
        logprobs: One for each new token if they were asked for; empty otherwise.
    """

    text: str
    token_ids: tuple[int, ...]
    sequence: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()

    def __str__(self) -> str:
        """The text."""
        return self.text

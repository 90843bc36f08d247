"""What a generation gives back, whole or piece by piece."""

import enum
from dataclasses import dataclass

from shaperouter._signature import Signature

_REPR_TEXT = 40  # characters of the text that repr() shows


class FinishReason(enum.StrEnum):
    """Why a sequence ended."""

    EOS = "eos"  # the model produced an end token
    LENGTH = "length"  # max_new_tokens was reached
    UNKNOWN = "unknown"  # a reason that this version of the client does not know


@dataclass(frozen=True, kw_only=True)
class GeneratedSequence:
    """One generated sequence.

    Attributes:
        text: The new text, without the prompt and without special tokens.
        token_ids: The new token ids, with the end token if there is one.
        finish_reason: Why it ended.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens counted.

    Attributes:
        prompt_tokens: Tokens of the prompt.
        padded_prompt_tokens: Tokens that were computed for them, padding included.
        generated_tokens: New tokens, end token included.
    """

    prompt_tokens: int
    padded_prompt_tokens: int
    generated_tokens: int


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Where the time went, in seconds on the service's clock.

    Attributes:
        queue_seconds: From the arrival at the worker until a slot was free.
        stall_seconds: Waiting for graphs to be traced and compiled.
        prefill_seconds: From the start of the prefill to the first token, stalls left out.
        decode_seconds: From the first token to the last, stalls left out.
        time_to_first_token_seconds: From the arrival at the service to the first token.
        total_seconds: From the arrival at the service to the end.
    """

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


@dataclass(frozen=True, kw_only=True, repr=False)
class Generation:
    """A whole generation; ``str()`` gives its text.

    Attributes:
        sequences: The generated sequences, best first; at least one.
        request_id: Id of the request; also in the service's logs.
        model: Name of the model that served it.
        seed: Seed that was used: giving it again gives the same tokens.
        usage: Tokens counted.
        timings: Where the time went.
        graphs: Which graphs were asked for and which served, in order of first use.
        worker: The worker that ran it.
    """

    sequences: tuple[GeneratedSequence, ...]
    request_id: str
    model: str
    seed: int
    usage: Usage
    timings: Timings
    graphs: tuple[GraphUse, ...]
    worker: str

    @property
    def text(self) -> str:
        """New text of the best sequence, without the prompt and without special tokens."""
        return self.sequences[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        """New token ids of the best sequence, with the end token if there is one."""
        return self.sequences[0].token_ids

    @property
    def finish_reason(self) -> FinishReason:
        """Why the best sequence ended."""
        return self.sequences[0].finish_reason

    def __str__(self) -> str:
        """The text of the best sequence."""
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
        text: Text that is now certain; empty while a character is still split over tokens. The
            texts of all deltas, joined, are the whole text.
        token_ids: The new token ids.
    """

    text: str
    token_ids: tuple[int, ...]

    def __str__(self) -> str:
        """The text."""
        return self.text

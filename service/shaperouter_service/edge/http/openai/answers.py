"""Answers to completions and chat completions, whole and in pieces."""

import secrets
import string
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shaperouter_service.conversation import MessagePart, ReasoningPart, TextPart, ToolCall
from shaperouter_service.edge.http.openai.token_offsets import TokenOffsets
from shaperouter_service.generation.events import (
    Completion,
    Delta,
    GeneratedSequence,
    Generation,
    TokenizedInput,
)
from shaperouter_service.generation.run_events import FinishReason, TokenLogprobs
from shaperouter_service.routing.deployments import REVISION_DIGITS

# Characters of the id of a call. Mistral's templates require exactly this many letters and digits.
_CALL_ID = 9
_CALL_ID_CHARACTERS = string.ascii_letters + string.digits

_FINISH_REASONS: Mapping[FinishReason, str] = {
    FinishReason.EOS: "stop",
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
}


@dataclass
class Usage:
    """Numbers of tokens of several generations."""

    prompt: int = 0
    cached: int = 0
    generated: int = 0
    reasoning: int = 0

    def add(self, completion: Completion) -> None:
        """Adds those of one generation."""
        usage = completion.usage
        # A decoder's prompt is the service's own if there is a source.
        self.prompt += usage.source_tokens or usage.prompt_tokens
        self.cached += usage.cached_prompt_tokens
        self.generated += usage.generated_tokens

    def add_input(self, given: TokenizedInput) -> None:
        """Adds the prompt or source of a generation that has begun."""
        self.prompt += given.tokens

    def body(self) -> dict[str, Any]:
        """As completions have them."""
        details = {"completion_tokens_details": {"reasoning_tokens": self.reasoning}}
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.generated,
            "total_tokens": self.prompt + self.generated,
            "prompt_tokens_details": {"cached_tokens": self.cached},
            **(details if self.reasoning else {}),
        }

    def response_body(self) -> dict[str, Any]:
        """As responses have them."""
        return {
            "input_tokens": self.prompt,
            # What is kept of a prompt is not charged, so nothing counts as written.
            "input_tokens_details": {"cached_tokens": self.cached, "cache_write_tokens": 0},
            "output_tokens": self.generated,
            "output_tokens_details": {"reasoning_tokens": self.reasoning},
            "total_tokens": self.prompt + self.generated,
        }


@dataclass(kw_only=True)
class Answer:
    """What all parts of one answer have in common.

    Attributes:
        id: Id of the answer.
        model: Name of the model.
        is_chat: Whether it is a chat completion.
        scores_prompt: See `OpenAIRequest`.
        usage: Numbers of tokens so far.
        fingerprint: Revision of the model, as far as a generation has ended.
        created: Unix time of its start, in seconds.
    """

    id: str
    model: str
    is_chat: bool
    scores_prompt: bool = False
    usage: Usage = field(default_factory=Usage)
    fingerprint: str = ""
    created: int = field(default_factory=lambda: int(time.time()))
    # Where the tokens of each choice are in its text.
    _offsets: dict[int, TokenOffsets] = field(default_factory=dict)
    # Calls of tools in each choice so far.
    _calls: dict[int, int] = field(default_factory=dict)
    # What is known of each prompt.
    _inputs: dict[int, TokenizedInput] = field(default_factory=dict)

    def whole(self, generations: Sequence[Generation]) -> dict[str, Any]:
        """The answer in one piece: the sequences of all prompts, in order."""
        choices: list[dict[str, Any]] = []
        for prompt, generation in enumerate(generations):
            self.ended(generation.completion)
            given = self._inputs[prompt]
            for sequence in generation.sequences:
                index = len(choices)
                if self.is_chat:
                    choice = self._chat_choice(index, sequence, given)
                else:
                    told = None
                    if self.scores_prompt:
                        # Its tokens begin with the prompt's.
                        first, scores = sequence.token_ids[0], generation.prompt_logprobs
                        told = self._prompt_logprobs(index, given, first, scores)
                    if sequence.logprobs:
                        new = self._listed_logprobs(index, given, sequence.logprobs)
                        told = _joined(told, new) if told else new
                    choice = {"index": index, "text": sequence.text, "logprobs": told}
                reason = self._finish_reason(index, sequence.end.finish_reason)
                choices.append(choice | {"finish_reason": reason})
        kind = "chat.completion" if self.is_chat else "text_completion"
        return self._body(kind, choices) | {"usage": self.usage.body()}

    def read(self, prompt: int, given: TokenizedInput) -> None:
        """Takes one of the prompts, whose generation begins."""
        self._inputs[prompt] = given

    def ended(self, completion: Completion) -> None:
        """Notes what is known at the end of a generation."""
        self.usage.add(completion)
        self.fingerprint = completion.revision[:REVISION_DIGITS]

    def start(self, index: int) -> dict[str, Any]:
        """The first piece of a choice of a chat."""
        choice = {"index": index, "delta": {"role": "assistant", "content": ""}}
        return self._piece([choice | {"logprobs": None, "finish_reason": None}])

    def prompt(
        self, prompt: int, index: int, delta: Delta, logprobs: Sequence[TokenLogprobs]
    ) -> dict[str, Any]:
        """The piece of a choice that has its prompt and the log-probabilities of that."""
        told = self._prompt_logprobs(index, self._inputs[prompt], delta.token_ids[0], logprobs)
        choice = {"index": index, "text": delta.text, "logprobs": told, "finish_reason": None}
        return self._piece([choice])

    def pieces(self, prompt: int, index: int, delta: Delta) -> Iterator[dict[str, Any]]:
        """The pieces of a prompt's choice for a piece of its sequence."""
        given = self._inputs[prompt]
        if not self.is_chat:
            if delta.text or delta.logprobs:
                told = None
                if delta.logprobs:
                    told = self._listed_logprobs(index, given, delta.logprobs)
                choice = {"index": index, "text": delta.text, "logprobs": told}
                yield self._piece([choice | {"finish_reason": None}])
            return
        self.usage.reasoning += delta.reasoning_tokens
        logprobs = _chat_logprobs(delta.logprobs, given)
        deltas = [each for part in delta.parts for each in self._deltas(index, part)]
        if logprobs and not deltas:
            deltas = [{"content": ""}]
        for each in deltas:
            choice = {"index": index, "delta": each, "logprobs": logprobs, "finish_reason": None}
            logprobs = None
            yield self._piece([choice])

    def end(self, index: int, reason: FinishReason) -> dict[str, Any]:
        """The last piece of a choice."""
        text: dict[str, Any] = {"delta": {}} if self.is_chat else {"text": ""}
        choice = {"index": index, **text, "logprobs": None}
        return self._piece([choice | {"finish_reason": self._finish_reason(index, reason)}])

    def total(self) -> dict[str, Any]:
        """The piece with the numbers of tokens, after all choices."""
        return self._piece([]) | {"usage": self.usage.body()}

    def _piece(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return self._body("chat.completion.chunk" if self.is_chat else "text_completion", choices)

    def _body(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
            **({"system_fingerprint": self.fingerprint} if self.fingerprint else {}),
        }

    def _finish_reason(self, index: int, reason: FinishReason) -> str:
        told = _FINISH_REASONS[reason]
        return "tool_calls" if told == "stop" and self._calls.get(index) else told

    def _prompt_logprobs(
        self, index: int, given: TokenizedInput, first: int, logprobs: Sequence[TokenLogprobs]
    ) -> dict[str, Any]:
        """Log-probabilities of a prompt as lists; its first token has none."""
        token_ids = [first, *(each.token_id for each in logprobs)]
        scores = _lists(logprobs, given)
        return {
            "tokens": [given.token_text(first), *scores["tokens"]],
            "token_logprobs": [None, *scores["token_logprobs"]],
            "top_logprobs": [None, *scores["top_logprobs"]],
            "text_offset": self._offsets_of(index, given).of_prompt(token_ids),
        }

    def _listed_logprobs(
        self, index: int, given: TokenizedInput, logprobs: Sequence[TokenLogprobs]
    ) -> dict[str, Any]:
        """Log-probabilities of a choice's next tokens as lists, the form of completions."""
        offsets = self._offsets_of(index, given).of_next([each.token_id for each in logprobs])
        return _lists(logprobs, given) | {"text_offset": offsets}

    def _offsets_of(self, index: int, given: TokenizedInput) -> TokenOffsets:
        if index not in self._offsets:
            self._offsets[index] = TokenOffsets(given)
        return self._offsets[index]

    def _chat_choice(
        self, index: int, sequence: GeneratedSequence, given: TokenizedInput
    ) -> dict[str, Any]:
        self.usage.reasoning += sequence.reasoning_tokens
        parts = sequence.parts
        text = "".join(part.text for part in parts if isinstance(part, TextPart))
        reasoning = "".join(part.text for part in parts if isinstance(part, ReasoningPart))
        calls = [part for part in parts if isinstance(part, ToolCall)]
        has_others = bool(reasoning or calls)
        message: dict[str, Any] = {"role": "assistant", "refusal": None}
        message["content"] = text or (None if has_others else "")
        if reasoning:
            message["reasoning_content"] = reasoning
        if calls:
            self._calls[index] = len(calls)
            message["tool_calls"] = [
                {
                    "id": call_id(),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in calls
            ]
        logprobs = _chat_logprobs(sequence.logprobs, given)
        return {"index": index, "message": message, "logprobs": logprobs}

    def _deltas(self, index: int, part: MessagePart) -> list[dict[str, Any]]:
        match part:
            case TextPart(text):
                return [{"content": text}]
            case ReasoningPart(text):
                return [{"reasoning_content": text}]
            case ToolCall():
                number = self._calls.get(index, 0)
                self._calls[index] = number + 1
                named = {"name": part.name, "arguments": ""}
                begun = {"index": number, "id": call_id(), "type": "function", "function": named}
                rest = {"index": number, "function": {"arguments": part.arguments}}
                return [{"tool_calls": [begun]}, {"tool_calls": [rest]}]


def call_id() -> str:
    """A new id for a call of a tool."""
    return "".join(secrets.choice(_CALL_ID_CHARACTERS) for _ in range(_CALL_ID))


def _finite(logprob: float) -> float:
    """A log-probability that JSON can have."""
    return max(logprob, -9999.0)


def _chat_logprobs(
    logprobs: Sequence[TokenLogprobs], given: TokenizedInput
) -> dict[str, Any] | None:
    """Log-probabilities in the form of chat completions; None if there are none."""
    if not logprobs:
        return None

    def of(token_id: int, logprob: float) -> dict[str, Any]:
        own = given.token_bytes(token_id)
        return {
            "token": given.token_text(token_id),
            "logprob": _finite(logprob),
            "bytes": None if own is None else list(own),
        }

    content = [
        of(token.token_id, token.logprob) | {"top_logprobs": [of(*each) for each in token.top]}
        for token in logprobs
    ]
    return {"content": content, "refusal": None}


def _lists(logprobs: Sequence[TokenLogprobs], given: TokenizedInput) -> dict[str, list[Any]]:
    return {
        "tokens": [given.token_text(each.token_id) for each in logprobs],
        "token_logprobs": [_finite(each.logprob) for each in logprobs],
        "top_logprobs": [_by_text(each, given) for each in logprobs],
    }


def _joined(first: Mapping[str, list[Any]], second: Mapping[str, list[Any]]) -> dict[str, Any]:
    return {name: [*values, *second[name]] for name, values in first.items()}


def _by_text(token: TokenLogprobs, given: TokenizedInput) -> dict[str, float]:
    """Log-probabilities by text, of the likeliest tokens and of the token itself.

    Of tokens with equal texts, the likeliest counts.
    """
    found: dict[str, float] = {}
    for token_id, logprob in (*token.top, (token.token_id, token.logprob)):
        found.setdefault(given.token_text(token_id), _finite(logprob))
    return found

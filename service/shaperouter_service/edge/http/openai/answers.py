"""Answers to completions and chat completions, whole and in pieces."""

import itertools
import secrets
import string
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shaperouter_service.conversation import MessagePart, ReasoningPart, TextPart, ToolCall
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

# The text of a token, by its id.
TokenText = Callable[[int], str]

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
    # Characters of each choice so far, for the offsets of log-probabilities.
    _characters: dict[int, int] = field(default_factory=dict)
    # Calls of tools in each choice so far.
    _calls: dict[int, int] = field(default_factory=dict)
    # The texts of tokens, for each prompt.
    _token_texts: dict[int, TokenText] = field(default_factory=dict)

    def whole(self, generations: Sequence[Generation]) -> dict[str, Any]:
        """The answer in one piece: the sequences of all prompts, in order."""
        choices: list[dict[str, Any]] = []
        for prompt, generation in enumerate(generations):
            self.ended(generation.completion)
            token_text = self._token_texts[prompt]
            for sequence in generation.sequences:
                index = len(choices)
                if self.is_chat:
                    choice = self._chat_choice(index, sequence, token_text)
                else:
                    logprobs = [*generation.prompt_logprobs, *sequence.logprobs]
                    # Its tokens begin with the prompt's.
                    first = sequence.token_ids[0] if self.scores_prompt else None
                    choice = self._text_choice(index, sequence.text, logprobs, token_text, first)
                reason = self._finish_reason(index, sequence.end.finish_reason)
                choices.append(choice | {"finish_reason": reason})
        kind = "chat.completion" if self.is_chat else "text_completion"
        return self._body(kind, choices) | {"usage": self.usage.body()}

    def read(self, prompt: int, given: TokenizedInput) -> None:
        """Takes one of the prompts, whose generation begins."""
        self._token_texts[prompt] = given.token_text

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
        token_text = self._token_texts[prompt]
        choice = self._text_choice(index, delta.text, logprobs, token_text, delta.token_ids[0])
        return self._piece([choice | {"finish_reason": None}])

    def pieces(self, prompt: int, index: int, delta: Delta) -> Iterator[dict[str, Any]]:
        """The pieces of a prompt's choice for a piece of its sequence."""
        token_text = self._token_texts[prompt]
        if not self.is_chat:
            if delta.text or delta.logprobs:
                choice = self._text_choice(index, delta.text, delta.logprobs, token_text)
                yield self._piece([choice | {"finish_reason": None}])
            return
        self.usage.reasoning += delta.reasoning_tokens
        logprobs = _chat_logprobs(delta.logprobs, token_text)
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

    def _text_choice(
        self,
        index: int,
        text: str,
        logprobs: Sequence[TokenLogprobs],
        token_text: TokenText,
        first: int | None = None,
    ) -> dict[str, Any]:
        """A choice of a completion, or a piece of one.

        Args:
            index: Number of the choice.
            text: Its text.
            logprobs: Log-probabilities of its tokens; empty if there are none.
            token_text: The texts of its tokens.
            first: The first token of a prompt, which has no log-probability; None without a prompt.
        """
        offset = self._characters.get(index, 0)
        self._characters[index] = offset + len(text)
        has_logprobs = logprobs or first is not None
        told = _listed_logprobs(logprobs, token_text, offset, first) if has_logprobs else None
        return {"index": index, "text": text, "logprobs": told}

    def _chat_choice(
        self, index: int, sequence: GeneratedSequence, token_text: TokenText
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
        logprobs = _chat_logprobs(sequence.logprobs, token_text)
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
    logprobs: Sequence[TokenLogprobs], token_text: TokenText
) -> dict[str, Any] | None:
    """Log-probabilities in the form of chat completions; None if there are none."""
    if not logprobs:
        return None

    def of(token_id: int, logprob: float) -> dict[str, Any]:
        text = token_text(token_id)
        return {"token": text, "logprob": _finite(logprob), "bytes": list(text.encode())}

    content = [
        of(token.token_id, token.logprob) | {"top_logprobs": [of(*each) for each in token.top]}
        for token in logprobs
    ]
    return {"content": content, "refusal": None}


def _listed_logprobs(
    logprobs: Sequence[TokenLogprobs], token_text: TokenText, offset: int, first: int | None
) -> dict[str, Any]:
    """Log-probabilities as lists, the form of completions."""
    unknown = [] if first is None else [None]
    token_ids = [] if first is None else [first]
    texts = [token_text(each) for each in [*token_ids, *(each.token_id for each in logprobs)]]
    return {
        "tokens": texts,
        "token_logprobs": [*unknown, *(_finite(each.logprob) for each in logprobs)],
        "top_logprobs": [*unknown, *(_by_text(each, token_text) for each in logprobs)],
        "text_offset": list(itertools.accumulate(map(len, texts[:-1]), initial=offset)),
    }


def _by_text(token: TokenLogprobs, token_text: TokenText) -> dict[str, float]:
    """Log-probabilities by text, of the likeliest tokens and of the token itself.

    Of tokens with equal texts, the likeliest counts.
    """
    found: dict[str, float] = {}
    for token_id, logprob in (*token.top, (token.token_id, token.logprob)):
        found.setdefault(token_text(token_id), _finite(logprob))
    return found

"""Answers to completions and chat completions, whole and in pieces."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shaperouter_service.generation.events import Completion, Delta, Generation
from shaperouter_service.generation.run_events import FinishReason, TokenLogprobs

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
    generated: int = 0

    def add(self, completion: Completion) -> None:
        """Adds those of one generation."""
        usage = completion.usage
        # A decoder's prompt is the service's own if there is a source.
        self.prompt += usage.source_tokens or usage.prompt_tokens
        self.generated += usage.generated_tokens

    def body(self) -> dict[str, int]:
        """As OpenAI's API has them."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.generated,
            "total_tokens": self.prompt + self.generated,
        }


@dataclass(kw_only=True)
class Answer:
    """What all parts of one answer have in common.

    Attributes:
        id: Id of the answer.
        model: Name of the model.
        is_chat: Whether it is a chat completion.
        token_text: The text of a token, for log-probabilities.
        scores_prompt: See `OpenAIRequest`.
        usage: Numbers of tokens so far.
        created: Unix time of its start, in seconds.
    """

    id: str
    model: str
    is_chat: bool
    token_text: TokenText
    scores_prompt: bool = False
    usage: Usage = field(default_factory=Usage)
    created: int = field(default_factory=lambda: int(time.time()))
    # Characters of each choice so far, for the offsets of log-probabilities.
    _characters: dict[int, int] = field(default_factory=dict)

    def whole(self, generations: Sequence[Generation]) -> dict[str, Any]:
        """The answer in one piece: the sequences of all prompts, in order."""
        choices: list[dict[str, Any]] = []
        for generation in generations:
            self.usage.add(generation.completion)
            for sequence in generation.sequences:
                index = len(choices)
                choice = self._choice(
                    index,
                    sequence.text,
                    [*generation.prompt_logprobs, *sequence.logprobs],
                    whole=True,
                    # Its tokens begin with the prompt's.
                    first=sequence.token_ids[0] if self.scores_prompt else None,
                )
                choice["finish_reason"] = _FINISH_REASONS[sequence.end.finish_reason]
                choices.append(choice)
        kind = "chat.completion" if self.is_chat else "text_completion"
        return self._body(kind, choices) | {"usage": self.usage.body()}

    def start(self, index: int) -> dict[str, Any]:
        """The first piece of a choice of a chat."""
        choice = {"index": index, "delta": {"role": "assistant", "content": ""}}
        return self._piece([choice | {"logprobs": None, "finish_reason": None}])

    def prompt(self, index: int, delta: Delta, logprobs: Sequence[TokenLogprobs]) -> dict[str, Any]:
        """The piece of a choice that has the prompt and its log-probabilities."""
        first = delta.token_ids[0]
        choice = self._choice(index, delta.text, logprobs, whole=False, first=first)
        return self._piece([choice | {"finish_reason": None}])

    def piece(self, index: int, delta: Delta) -> dict[str, Any]:
        """A piece of a choice."""
        choice = self._choice(index, delta.text, delta.logprobs, whole=False)
        return self._piece([choice | {"finish_reason": None}])

    def end(self, index: int, reason: FinishReason) -> dict[str, Any]:
        """The last piece of a choice."""
        text: dict[str, Any] = {"delta": {}} if self.is_chat else {"text": ""}
        choice = {"index": index, **text, "logprobs": None}
        return self._piece([choice | {"finish_reason": _FINISH_REASONS[reason]}])

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
        }

    def _choice(
        self,
        index: int,
        text: str,
        logprobs: Sequence[TokenLogprobs],
        *,
        whole: bool,
        first: int | None = None,
    ) -> dict[str, Any]:
        """A choice, or a piece of one.

        Args:
            index: Number of the choice.
            text: Its text.
            logprobs: Log-probabilities of its tokens; empty if there are none.
            whole: Whether it is the whole choice.
            first: The first token of a prompt, which has no log-probability; None without a prompt.
        """
        told: dict[str, Any] | None = None
        if not self.is_chat:
            if logprobs or first is not None:
                told = self._listed_logprobs(logprobs, self._characters.get(index, 0), first)
            self._characters[index] = self._characters.get(index, 0) + len(text)
            return {"index": index, "text": text, "logprobs": told}
        if logprobs:
            told = {"content": list(map(self._chat_logprobs, logprobs)), "refusal": None}
        if whole:
            message = {"role": "assistant", "content": text, "refusal": None}
            return {"index": index, "message": message, "logprobs": told}
        return {"index": index, "delta": {"content": text}, "logprobs": told}

    def _chat_logprobs(self, token: TokenLogprobs) -> dict[str, Any]:
        return self._token(token.token_id, token.logprob) | {
            "top_logprobs": [self._token(*each) for each in token.top]
        }

    def _token(self, token_id: int, logprob: float) -> dict[str, Any]:
        text = self.token_text(token_id)
        return {"token": text, "logprob": _finite(logprob), "bytes": list(text.encode())}

    def _listed_logprobs(
        self, logprobs: Sequence[TokenLogprobs], offset: int, first: int | None
    ) -> dict[str, Any]:
        """Log-probabilities as lists, the form of completions."""
        unknown = [] if first is None else [None]
        token_ids = [] if first is None else [first]
        texts = [self.token_text(each) for each in [*token_ids, *(e.token_id for e in logprobs)]]
        return {
            "tokens": texts,
            "token_logprobs": [*unknown, *(_finite(each.logprob) for each in logprobs)],
            "top_logprobs": [*unknown, *(self._by_text(each.top) for each in logprobs)],
            "text_offset": list(itertools.accumulate(map(len, texts[:-1]), initial=offset)),
        }

    def _by_text(self, top: Sequence[tuple[int, float]]) -> dict[str, float]:
        """Log-probabilities by the text of their token; of equal texts, the likeliest."""
        found: dict[str, float] = {}
        for token_id, logprob in top:
            found.setdefault(self.token_text(token_id), _finite(logprob))
        return found


def _finite(logprob: float) -> float:
    """A log-probability that JSON can have."""
    return max(logprob, -9999.0)

"""Answers to requests to generate text: the events of a generation as tensors."""

import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from shaperouter_service.edge.inference.generation_inputs import (
    FINISH_REASON,
    INPUT_TOKENS,
    LOGPROB,
    OUTPUT_TOKENS,
    OUTPUTS,
    PROMPT_LOGPROBS,
    TEXT_OUTPUT,
)
from shaperouter_service.edge.inference.generation_request import Generation
from shaperouter_service.edge.inference.requests import Array, InferResponse
from shaperouter_service.generation.events import (
    Completed,
    Delta,
    GenerationEvent,
    TokenizedInput,
)
from shaperouter_service.generation.run_events import PromptLogprobs, Stalled
from shaperouter_service.tensors.dtypes import DType

# Starts a generation, given what to call with its input before the first event.
Generate: TypeAlias = Callable[
    [Callable[[TokenizedInput], None]], AsyncGenerator[GenerationEvent, None]
]


async def answers(
    asked: Generation, generate: Generate
) -> AsyncGenerator[InferResponse | None, None]:
    """Yields the answer of a generation: one, or one for each of its pieces and one for its end.

    Yields None for other events, such as that it waits.

    In a stream, each response has one text for each sequence: what is new of it. The last one has
    all the other tensors.
    """
    answer = _Answer(asked)
    async with contextlib.aclosing(generate(answer.read)) as events:
        async for event in events:
            match event:
                case PromptLogprobs(logprobs):
                    answer.prompt_logprobs += [each.logprob for each in logprobs]
                case Delta():
                    answer.add(event)
                    if asked.streams and event.text and TEXT_OUTPUT in asked.outputs:
                        yield answer.piece()
                case Completed():
                    yield answer.end(event)
                case Stalled():
                    yield None


class _Answer:
    """The tensors of a generation, as far as it has come.

    Attributes:
        prompt_logprobs: Log-probabilities of the prompt's tokens but the first.
    """

    def __init__(self, asked: Generation) -> None:
        self.prompt_logprobs: list[float] = []
        self._asked = asked
        self._texts: list[str] = []
        self._tokens: list[int] = []
        self._logprobs: list[float] = []
        # What the text of each sequence begins with.
        self._prefix = ""
        # Begun with the first piece: before, nobody has checked how many they are.
        self._sequences = asked.request.options.get("num_return_sequences", 1)

    def read(self, given: TokenizedInput) -> None:
        """Takes the input: the text begins with a prompt, but never with a source."""
        if not (given.is_source or self._asked.excludes_input):
            self._prefix = self._asked.request.input.text or ""

    def add(self, delta: Delta) -> None:
        """Adds a piece of a sequence."""
        # More than the request names, if the checkpoint's default is more.
        self._begin(max(self._sequences, delta.sequence + 1))
        self._texts[delta.sequence] += delta.text
        self._tokens[delta.sequence] += len(delta.token_ids)
        self._logprobs[delta.sequence] += sum(each.logprob for each in delta.logprobs)

    def piece(self) -> InferResponse:
        """The response that has the new text, which is then no longer held."""
        response = self._response({TEXT_OUTPUT: self._texts}, is_final=False)
        self._texts = [""] * len(self._texts)
        return response

    def end(self, event: Completed) -> InferResponse:
        """The last response."""
        usage = event.completion.usage
        self._begin(len(event.sequences))
        return self._response(
            {
                TEXT_OUTPUT: self._texts,
                FINISH_REASON: [end.finish_reason.name.lower() for end in event.sequences],
                INPUT_TOKENS: [usage.source_tokens or usage.prompt_tokens],
                OUTPUT_TOKENS: self._tokens,
                LOGPROB: self._logprobs,
                PROMPT_LOGPROBS: self.prompt_logprobs,
            },
            is_final=True,
        )

    def _begin(self, sequences: int) -> None:
        """Begins all sequences of the request that have not begun."""
        for _ in range(len(self._texts), sequences):
            self._texts.append(self._prefix)
            self._tokens.append(0)
            self._logprobs.append(0.0)

    def _response(self, values: Mapping[str, list[Any]], *, is_final: bool) -> InferResponse:
        asked = self._asked
        outputs = {
            name: _tensor(values[name], dtype)
            for name, dtype in OUTPUTS.items()
            if name in values and name in asked.outputs
        }
        return InferResponse(
            model=asked.request.model, id=asked.id, outputs=outputs, is_final=is_final
        )


def _tensor(values: list[Any], dtype: DType) -> Array:
    if dtype is DType.BYTES:
        values = [text.encode() for text in values]
    return np.array(values, dtype.numpy)

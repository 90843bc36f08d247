"""Preparation and results of several prompts in one call."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import grpc

from shaperouter import _values
from shaperouter._errors import (
    DeadlineError,
    InvalidArgumentError,
    PromptsError,
    ShaperouterError,
)
from shaperouter._generation import Generation
from shaperouter.v1 import generation_pb2

# Requests in progress at a time: enough to fill the slots of one or two workers, and within the
# usual limit of requests for one client.
DEFAULT_CONCURRENCY = 8

Prepared = generation_pb2.GenerateRequest | InvalidArgumentError
Result = Generation | ShaperouterError


def is_list_of_prompts(prompt: object) -> bool:
    """Whether the items of `prompt` are prompts, not token ids."""
    return (
        isinstance(prompt, Sequence)
        and not isinstance(prompt, str | bytes | bytearray)
        and len(prompt) > 0
        and isinstance(prompt[0], Iterable)
    )


def prepare(
    prompts: Iterable[Any], make: Callable[[Any], generation_pb2.GenerateRequest]
) -> list[Prepared]:
    """Builds the request of each prompt, or the error if the prompt is invalid."""

    def prepared(prompt: Any) -> Prepared:
        try:
            return make(prompt)
        except InvalidArgumentError as error:
            return error

    return [prepared(prompt) for prompt in prompts]


def concurrency(value: object) -> int:
    """Checks how many requests may be in progress at a time.

    Raises:
        InvalidArgumentError: It is not a number above 0.
    """
    count = _values.integer("max_concurrency", value, bits=32)
    if count < 1:
        raise InvalidArgumentError.of("max_concurrency", f"must be at least 1, got {count}")
    return count


def time_left(left: float | None, deadline: float | None) -> float:
    """Seconds for a request that is sent now; infinity means no limit.

    Raises:
        DeadlineError: No time is left.
    """
    if left is None:
        return math.inf
    if left == 0:
        raise DeadlineError(
            f"the timeout of {deadline:g} s ended before this prompt was sent",
            code=grpc.StatusCode.DEADLINE_EXCEEDED,
        )
    return left


def generations(results: Sequence[Result]) -> list[Generation]:
    """Returns the results if all of them are generations.

    Raises:
        PromptsError: At least one is an error; contains all results.
    """
    made = [result for result in results if isinstance(result, Generation)]
    if len(made) < len(results):
        raise PromptsError.of(results)
    return made

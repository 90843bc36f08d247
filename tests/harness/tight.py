"""The graphs that fit requests best, which nothing makes by itself before they have been missed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import Signature


@dataclass(frozen=True, kw_only=True)
class Case:
    """What of a request decides which graphs fit it."""

    prompt_tokens: int
    new_tokens: int
    num_beams: int = 1


def tight_signatures(model: str, ladders: Ladders, together: Sequence[Case]) -> Iterator[Signature]:
    """The tight covers of requests that run together, which all have the same beam width."""
    beams = ladders.lane(together[0].num_beams).beams
    longest = max(case.prompt_tokens for case in together)
    yield ladders.prefill(model, rows=len(together), prompt_tokens=longest)
    yield ladders.decode(
        model,
        rows=len(together),
        length=max(case.prompt_tokens + beams * (case.new_tokens - 1) for case in together),
        beams=beams,
    )

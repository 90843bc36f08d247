"""The tight covers of requests, which workers compile only after requests have missed them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import GraphKind, Signature


@dataclass(frozen=True, kw_only=True)
class Case:
    """The properties of a request that decide its tight covers."""

    prompt_tokens: int
    new_tokens: int
    num_beams: int = 1
    source_tokens: int = 0


def tight_signatures(model: str, ladders: Ladders, together: Sequence[Case]) -> Iterator[Signature]:
    """The tight covers of requests of one beam width that run together."""
    beams = ladders.lane(together[0].num_beams).beams
    source_tokens = max(case.source_tokens for case in together)
    if source_tokens:
        yield ladders.encode(model, rows=len(together), source_tokens=source_tokens)
    if read := max(ladders.read_tokens(case.prompt_tokens) for case in together):
        # Long prompts are read in several calls.
        most = ladders.rows(GraphKind.PREFILL, ladders.prefill_lengths.cover(read)).maximum
        yield ladders.prefill(model, rows=min(len(together), most), prompt_tokens=read)
    places = [
        ladders.positions(
            prompt_tokens=case.prompt_tokens,
            new_tokens=case.new_tokens,
            beams=beams,
            source_tokens=case.source_tokens,
        )
        for case in together
    ]
    yield ladders.decode(model, rows=len(together), length=max(places), beams=beams)

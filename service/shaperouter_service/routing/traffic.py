"""Traffic: counts of what was requested of a model and what serving it took.

A record outlives workers, so that a new worker can make the graphs that will be needed, and ladders
can be fitted to the requests. Each process counts for itself. The records of one model are then
merged, in any order.

Counts grow, and decay only when they are merged (see `decay`): the older record loses half for
each HALF_LIFE between the two. So a record describes about the last ten days (HALF_LIFE / ln 2),
however long it is kept. Graphs out of use lose their weight gradually; nothing is forgotten at
once.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.costs import NOMINAL_COMPILE_SECONDS
from shaperouter_service.routing.decay import share_left
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import GraphKind, Signature

Key = TypeVar("Key", bound=Hashable)


@dataclass(kw_only=True)
class SignatureTraffic:
    """Counts of one signature.

    Attributes:
        asked: Number of times it was the tight cover.
        calls: Calls of its graph that served requests.
        steps: Steps, or pieces of prompts, in those calls.
        device_seconds: Device time of those calls.
        missed_seconds: Device time lost because it was missing: larger graphs ran, or several in
            turn.
        compiles: Number of times it was compiled; loads from a cache do not count.
        compile_seconds: Time of those compilations, including tracing.
        last_used: Unix time of its last call; 0 if there was none.
    """

    asked: float = 0.0
    calls: float = 0.0
    steps: float = 0.0
    device_seconds: float = 0.0
    missed_seconds: float = 0.0
    compiles: float = 0.0
    compile_seconds: float = 0.0
    last_used: float = 0.0

    def add(self, other: "SignatureTraffic", share: float) -> None:
        """Adds a fraction of another's counts."""
        self.asked += share * other.asked
        self.calls += share * other.calls
        self.steps += share * other.steps
        self.device_seconds += share * other.device_seconds
        self.missed_seconds += share * other.missed_seconds
        self.compiles += share * other.compiles
        self.compile_seconds += share * other.compile_seconds
        self.last_used = max(self.last_used, other.last_used)


@dataclass(kw_only=True)
class Traffic:
    """The record of one model.

    Not locked. `merged` changes neither record.

    Attributes:
        model: Name of the model.
        ladders: The model's ladders at the time of the newest count.
        as_of: Time of the newest count, in Unix time.
        seconds: Time that workers recorded, in seconds. It decays like the counts, so that counts
            divided by it are rates of one worker.
        prompts: Number of prompts by length, in tokens that prefill reads.
        runs: Number of runs by width of their lane and final length: the positions that the last
            step attends to if nothing ends the run early.
        signatures: Counts of each signature.
        sources: Number of sources by length, in positions.
        sizes: Number of joined calls of a model that is called once, by axis and size: of the
            batch, and of each other axis that may be padded.
    """

    model: str
    ladders: Ladders | CallLadders
    as_of: float
    seconds: float = 0.0
    prompts: dict[int, float] = field(default_factory=dict)
    runs: dict[tuple[int, int], float] = field(default_factory=dict)
    signatures: dict[Signature, SignatureTraffic] = field(default_factory=dict)
    sources: dict[int, float] = field(default_factory=dict)
    sizes: dict[tuple[str, int], float] = field(default_factory=dict)

    @property
    def of_generation(self) -> Ladders:
        """The ladders of a model that generates tokens.

        Raises:
            TypeError: The model is called once.
        """
        if isinstance(self.ladders, CallLadders):
            raise TypeError(f"{self.model} is called once")
        return self.ladders

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been counted."""
        counts = (self.prompts, self.runs, self.signatures, self.sources, self.sizes)
        return not any(counts)

    def add_prompt(self, tokens: int) -> None:
        """Counts a prompt."""
        self.prompts[tokens] = self.prompts.get(tokens, 0.0) + 1

    def add_source(self, length: int) -> None:
        """Counts a source."""
        self.sources[length] = self.sources.get(length, 0.0) + 1

    def add_run(self, beams: int, final_length: int) -> None:
        """Counts a run in the lane of `beams` whose last step attends to `final_length`."""
        self.runs[beams, final_length] = self.runs.get((beams, final_length), 0.0) + 1

    def add_size(self, axis: str, size: int) -> None:
        """Counts joined calls by their size along an axis."""
        self.sizes[axis, size] = self.sizes.get((axis, size), 0.0) + 1

    def of(self, signature: Signature) -> SignatureTraffic:
        """The counts of a signature, for adding to them."""
        return self.signatures.setdefault(signature, SignatureTraffic())

    def share_left(self, time: float) -> float:
        """Fraction of its counts that is left at a Unix time; 1 up to `as_of`."""
        return share_left(time - self.as_of)

    def merged(self, other: "Traffic") -> "Traffic":
        """Merges two records, as of the newer one. The order does not matter.

        Raises:
            ValueError: The records are of different models.
        """
        if self.model != other.model:
            raise ValueError(f"traffic of {self.model} is not traffic of {other.model}")
        # If both have the same time, either may count as newer, but it must always be the same one.
        older, newer = sorted((self, other), key=lambda one: (one.as_of, repr(one.ladders)))
        share = older.share_left(newer.as_of)
        merged = Traffic(
            model=self.model,
            ladders=newer.ladders,
            as_of=newer.as_of,
            seconds=newer.seconds + share * older.seconds,
            prompts=_summed(newer.prompts, older.prompts, share),
            runs=_summed(newer.runs, older.runs, share),
            sources=_summed(newer.sources, older.sources, share),
            sizes=_summed(newer.sizes, older.sizes, share),
        )
        for record, part in ((newer, 1.0), (older, share)):
            for signature, counts in record.signatures.items():
                merged.of(signature).add(counts, part)
        return merged

    def compile_seconds(self, kind: GraphKind) -> float:
        """Mean time to compile a graph of a kind, or of any kind if none of it was compiled."""
        for kinds in ((kind,), tuple(GraphKind)):
            counts = [one for key, one in self.signatures.items() if key.kind in kinds]
            compiles = sum(one.compiles for one in counts)
            if compiles:
                return sum(one.compile_seconds for one in counts) / compiles
        return NOMINAL_COMPILE_SECONDS


def _summed(
    newer: Mapping[Key, float], older: Mapping[Key, float], share: float
) -> dict[Key, float]:
    summed = dict(newer)
    for key, count in older.items():
        summed[key] = summed.get(key, 0.0) + share * count
    return summed

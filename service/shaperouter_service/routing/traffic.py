"""Traffic: what was asked for of a model and what serving it took, in counts that fade.

A record is kept over many lives of many workers, so that a new worker can make ready what will be
asked for, and ladders can be fitted to what is. Each process counts for itself; records of one
model are then merged, in any order.

Counts grow, and fade only in merging (see `fading`): the older record loses half for each HALF_LIFE
that lies between the two. So a record tells of the last ten days or so (HALF_LIFE / ln 2) however
long it is kept, what is out of use ends up weighing nothing, and at no moment anything is forgotten
at once.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from shaperouter_service.routing.fading import share_left
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import GraphKind, Signature

Key = TypeVar("Key", bound=Hashable)

# Seconds to compile a graph where none was ever compiled: what GPT-2 small takes on two cores.
ASSUMED_COMPILE_SECONDS = 5.0


@dataclass(kw_only=True)
class SignatureTraffic:
    """What one signature was asked for and did.

    Attributes:
        asked: Times it was the tight cover of what was to be computed.
        calls: Calls of its graph that served requests.
        steps: Steps, or pieces of prompts, in those calls.
        device_seconds: Device time of those calls.
        missed_seconds: Device time that its absence cost: larger graphs ran, or several in turn.
        compiles: Times it was compiled; loading it from a cache is not compiling.
        compile_seconds: Time that took, tracing included.
        last_used: When it last served, in Unix time; 0 if it never has.
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
        """Adds a share of another's counts."""
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

    Not locked; `merged` changes neither record.

    Attributes:
        model: Name of the model.
        ladders: Its ladders when the newest of this was recorded.
        as_of: When that was, in Unix time.
        seconds: Time that workers recorded for, in seconds: it fades as the counts do, so that
            counts over it are rates of one worker.
        prompts: How many prompts there were of each length, in tokens that prefill reads.
        runs: How many runs there were of each width of their lane and final length: the places
            that the last step attends to if nothing ends the run early.
        signatures: What each signature was asked for and did.
        sources: How many sources there were of each length, in places.
    """

    model: str
    ladders: Ladders
    as_of: float
    seconds: float = 0.0
    prompts: dict[int, float] = field(default_factory=dict)
    runs: dict[tuple[int, int], float] = field(default_factory=dict)
    signatures: dict[Signature, SignatureTraffic] = field(default_factory=dict)
    sources: dict[int, float] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was counted."""
        return not (self.prompts or self.runs or self.signatures or self.sources)

    def add_prompt(self, tokens: int) -> None:
        """Counts a prompt."""
        self.prompts[tokens] = self.prompts.get(tokens, 0.0) + 1

    def add_source(self, length: int) -> None:
        """Counts a source."""
        self.sources[length] = self.sources.get(length, 0.0) + 1

    def add_run(self, beams: int, final_length: int) -> None:
        """Counts a run in the lane of `beams` that attends to so many places at its last step."""
        self.runs[beams, final_length] = self.runs.get((beams, final_length), 0.0) + 1

    def of(self, signature: Signature) -> SignatureTraffic:
        """The counts of a signature, to be added to."""
        return self.signatures.setdefault(signature, SignatureTraffic())

    def share_left(self, time: float) -> float:
        """Share of its counts that is left at a Unix time, 1 up to `as_of`."""
        return share_left(time - self.as_of)

    def merged(self, other: "Traffic") -> "Traffic":
        """Returns both together, as of the newer one. The order of merging makes no difference.

        Raises:
            ValueError: They are of different models.
        """
        if self.model != other.model:
            raise ValueError(f"traffic of {self.model} is not traffic of {other.model}")
        # Of two records of the same moment, either may count as newer if it is always the same.
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
        )
        for record, part in ((newer, 1.0), (older, share)):
            for signature, counts in record.signatures.items():
                merged.of(signature).add(counts, part)
        return merged

    def compile_seconds(self, kind: GraphKind) -> float:
        """Mean time to compile a graph of a kind, or of any where none of the kind was compiled."""
        for kinds in ((kind,), tuple(GraphKind)):
            counts = [one for key, one in self.signatures.items() if key.kind in kinds]
            compiles = sum(one.compiles for one in counts)
            if compiles:
                return sum(one.compile_seconds for one in counts) / compiles
        return ASSUMED_COMPILE_SECONDS


def _summed(
    newer: Mapping[Key, float], older: Mapping[Key, float], share: float
) -> dict[Key, float]:
    summed = dict(newer)
    for key, count in older.items():
        summed[key] = summed.get(key, 0.0) + share * count
    return summed

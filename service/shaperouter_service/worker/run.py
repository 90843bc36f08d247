"""A run: one request on a worker, from its arrival to its end."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from shaperouter_service.decoding import Aligned, Batch, Options
from shaperouter_service.errors import ServiceError
from shaperouter_service.generation.run_events import (
    FinishReason,
    GraphUse,
    Hypothesis,
    Isolated,
    NewTokens,
    RunTimings,
    Stalled,
)
from shaperouter_service.graphs import Graph
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.text import StopTokens


class Phase(Enum):
    """Where a run is.

    ::

        QUEUED → ENCODE → PREFILL → DECODE → ENDED
           │       ├──→ ALIGN ───→─────────────┤
           └───────┴─────────┴─────────┴───────┘

    Without a source there is no encode; with one, no prefill of a prompt of one token. What is
    aligned has its tokens already.
    """

    QUEUED = auto()
    ENCODE = auto()
    PREFILL = auto()
    DECODE = auto()
    ALIGN = auto()
    ENDED = auto()


@dataclass(kw_only=True)
class Timings:
    """When things happened to a run, in seconds of one monotonic clock; intervals follow.

    Attributes:
        arrived: It came to the worker.
        admitted: It got a slot.
        prefill_started: The first graph was called for it, which read its source or prompt.
        first_token: Its first token was made.
        ended: Its last token was made.
        stalled_first: Time stalled before it had a slot.
        stalled_later: Time stalled after its first token.
    """

    arrived: float
    admitted: float = 0.0
    prefill_started: float = 0.0
    first_token: float = 0.0
    ended: float = 0.0
    stalled_first: float = 0.0
    stalled_later: float = 0.0

    def durations(self) -> RunTimings:
        """The intervals between them, once the run has ended."""
        return RunTimings(
            queue_seconds=self.admitted - self.arrived - self.stalled_first,
            stall_seconds=self.stalled_first + self.stalled_later,
            prefill_seconds=self.first_token - self.prefill_started,
            decode_seconds=self.ended - self.first_token - self.stalled_later,
        )


@dataclass(frozen=True)
class Ended:
    """The run has ended well; its fields tell the rest.

    Attributes:
        reason: Why; that of the best hypothesis with beam search.
        hypotheses: Of beam search, from best to worst.
        no_speech: Probability that nobody speaks, of a transcript that was asked for it.
        aligned: What tells when the tokens were said, if that was asked for: of one row.
    """

    reason: FinishReason
    hypotheses: Sequence[Hypothesis] = ()
    no_speech: float | None = None
    aligned: Aligned | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Failed:
    """The run has ended badly."""

    error: ServiceError


Event = Stalled | Isolated | NewTokens | Ended | Failed


@dataclass(kw_only=True, eq=False)
class Run:
    """One request. Touched by the device thread alone once it is submitted, but for `cancelled`.

    Attributes:
        request_id: For logs.
        client: Who asks, for fairness between those who wait.
        resumed: It had a slot on another worker, and goes on here.
        suspect: Workers died with it, so it is isolated; see `isolation`.
        lane_beams: Width of the lane it runs in, at least `num_beams`; 0 is the narrowest.
        token_ids: The prompt; the decoder's, if there is an encoder.
        source: What an encoder reads; empty without one.
        source_key: Equal for equal sources; empty if it is not worth knowing.
        source_length: Places that it takes.
        valid_length: Of these, places of a recording; the rest of its window is padding.
        aligns: The tokens are a whole transcript, that is to be aligned with the source.
        generated_token_ids: What has been made of it elsewhere, which it goes on after.
        max_new_tokens: Most tokens to make, those made elsewhere among them.
        eos_token_ids: Tokens that end it.
        num_beams: Hypotheses of beam search; 1 is none.
        num_return_sequences: Hypotheses to return.
        stop_tokens: Tells what completes a stop string; None without, and without beam search.
        logprobs: Likeliest tokens to report at each step; None for no log-probabilities at all.
        options: Its record for the device, the above among them.
        emit: Takes its events; called from the device thread.
        timings: When things happened.
        cancelled: Set from any thread; the slot is freed at the next chunk boundary.
        phase: Where it is.
        batch: The batch it is in, once its prefill has begun.
        row: Its row there.
        generated: Tokens made so far, by each hypothesis, here and elsewhere.
        padded_prompt_tokens: Tokens that its prefill computed.
        padded_source_tokens: Places that its encode computed, if one did for it.
        uses: The graphs that served it, by what was asked and what served.
        stalled_since: When it began to wait for a graph; only while it is stalled.
    """

    request_id: str
    client: str
    lane_beams: int
    token_ids: Sequence[int]
    max_new_tokens: int
    eos_token_ids: Sequence[int]
    num_beams: int
    num_return_sequences: int
    logprobs: int | None
    options: Options = field(repr=False)
    emit: Callable[[Event], None]
    timings: Timings
    cancelled: bool = False
    phase: Phase = Phase.QUEUED
    batch: Batch | None = field(default=None, repr=False)
    row: int = -1
    generated: int = 0
    padded_prompt_tokens: int = 0
    padded_source_tokens: int = 0
    source: Sequence[Any] = field(default=(), repr=False)
    source_key: bytes = b""
    source_length: int = 0
    valid_length: int = 0
    aligns: bool = False
    generated_token_ids: Sequence[int] = ()
    resumed: bool = False
    suspect: bool = False
    stop_tokens: StopTokens | None = field(default=None, repr=False)
    uses: dict[tuple[Signature, Signature], GraphUse] = field(default_factory=dict)
    stalled_since: float = 0.0
    _stalled_on: Graph | None = None
    _is_isolated: bool = False

    def __post_init__(self) -> None:
        self.generated = len(self.generated_token_ids)

    @property
    def read_tokens(self) -> int:
        """Tokens that its prefill reads; see `State.read_lengths`."""
        if self.has_source:
            return len(self.token_ids) + len(self.generated_token_ids) - 1
        return len(self.token_ids) + max(0, len(self.generated_token_ids) - 1)

    @property
    def has_source(self) -> bool:
        """Whether an encoder reads something for it."""
        return self.source_length > 0

    @property
    def begun(self) -> bool:
        """Whether it has had a token here."""
        return self.generated > len(self.generated_token_ids)

    @property
    def stalled_on(self) -> Signature | None:
        """The graph that it waits for; None while it waits for none."""
        return None if self._stalled_on is None else self._stalled_on.signature

    @property
    def needs_isolation(self) -> bool:
        """Whether the device should do nothing but advance it, once it has a slot."""
        if not self.suspect or self._stalled_on is not None or self.phase is Phase.ENDED:
            return False
        return self.num_beams > 1 or self.aligns or not self.begun

    def isolate(self) -> bool:
        """Tells that it has the device to itself; returns whether that is news."""
        is_new = not self._is_isolated
        if is_new:
            self._is_isolated = True
            self.emit(Isolated())
        return is_new

    def attended(self, beams: int) -> int:
        """Places its next step attends to, in a lane of `beams`: the newest tokens' included."""
        if self.has_source:
            return len(self.token_ids) - 1 + beams * (self.generated + 1)
        return len(self.token_ids) + beams * max(1, self.generated)

    def stall(self, graph: Graph, now: float) -> None:
        """Begins to wait for a graph, or goes on waiting."""
        if self._stalled_on is not graph:
            self.resume(now)
            self._stalled_on, self.stalled_since = graph, now
            self._is_isolated = False
            self.emit(Stalled(graph.signature))

    def resume(self, now: float) -> None:
        """Ends the waiting, if it waits."""
        if self._stalled_on is None:
            return
        waited = now - self.stalled_since
        self._stalled_on.stall_seconds.observe(waited)
        self._stalled_on = None
        if self.phase is Phase.DECODE:
            self.timings.stalled_later += waited
        else:
            self.timings.stalled_first += waited

    def use(self, asked: Signature, served: Signature, seconds: float) -> None:
        """Notes a call of a graph."""
        use = GraphUse(asked=asked, served=served, calls=1, device_seconds=seconds)
        known = self.uses.get((asked, served))
        self.uses[asked, served] = use if known is None else known + use


def in_phase(runs: Iterable[Run], phase: Phase) -> list[Run]:
    """Those of some runs that are in a phase."""
    return [run for run in runs if run.phase is phase]


def in_batches(runs: Iterable[Run]) -> list[Run]:
    """Those of some runs that are in batches, beside which others may lie."""
    return [run for run in runs if run.batch is not None]

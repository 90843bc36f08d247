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
    InputUsage,
    Isolated,
    NewTokens,
    PromptLogprobs,
    RunTimings,
    Stalled,
)
from shaperouter_service.graphs import Graph
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.text import Constraint, StopTokens
from shaperouter_service.worker.speculation import ProposalLimits


class Phase(Enum):
    """The phase of a run.

    ::

        QUEUED → ENCODE → PREFILL → DECODE → ENDED
           │       ├──→ ALIGN ───→─────────────┤
           └───────┴─────────┴─────────┴───────┘

    A run without a source is not encoded; with a source, a prompt of one token needs no prefill. A
    run that aligns a transcript generates no tokens.
    """

    QUEUED = auto()
    ENCODE = auto()
    PREFILL = auto()
    DECODE = auto()
    ALIGN = auto()
    ENDED = auto()


@dataclass(kw_only=True)
class Timings:
    """The times of a run's events, in seconds on the monotonic clock.

    Attributes:
        arrived: When it arrived at the worker.
        admitted: When it got a slot.
        prefill_started: When the first call began that read its source or prompt.
        first_token: When its first token was generated.
        ended: When its last token was generated.
        stalled_first: Seconds stalled before it had a slot.
        stalled_later: Seconds stalled after its first token.
    """

    arrived: float
    admitted: float = 0.0
    prefill_started: float = 0.0
    first_token: float = 0.0
    ended: float = 0.0
    stalled_first: float = 0.0
    stalled_later: float = 0.0

    def durations(self) -> RunTimings:
        """The intervals between these times, for a run that has ended."""
        return RunTimings(
            queue_seconds=self.admitted - self.arrived - self.stalled_first,
            stall_seconds=self.stalled_first + self.stalled_later,
            prefill_seconds=self.first_token - self.prefill_started,
            decode_seconds=self.ended - self.first_token - self.stalled_later,
        )


@dataclass(frozen=True)
class Ended:
    """The run has succeeded.

    Attributes:
        reason: Why it ended; with beam search, the reason of the best hypothesis.
        hypotheses: The hypotheses of beam search, from best to worst.
        no_speech: The probability that nobody speaks, if it was requested.
        aligned: The attention of the tokens to the source, if an alignment was requested.
    """

    reason: FinishReason
    hypotheses: Sequence[Hypothesis] = ()
    no_speech: float | None = None
    aligned: Aligned | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Failed:
    """The run has failed."""

    error: ServiceError


Event = Stalled | Isolated | PromptLogprobs | NewTokens | Ended | Failed


@dataclass(kw_only=True, eq=False)
class Run:
    """One run. Once it is submitted, only the device thread may change it, except `cancelled`.

    Attributes:
        request_id: Id of the request, for logs.
        client: The client, for fairness between queued runs.
        resumed: Whether it had a slot on another worker, and continues here.
        suspect: Whether workers died with it, so that it is isolated; see `isolation`.
        lane_beams: Beam width of its lane, at least `num_beams`; 0 means the narrowest.
        token_ids: The prompt; with an encoder, the decoder's prompt.
        source: The input of the encoder; empty without one.
        source_key: Equal for equal sources; empty if sources need not be compared.
        source_length: Length of the source, in positions.
        valid_length: Positions of a window that belong to the recording; the rest is padding.
        aligns: Whether the tokens are a whole transcript, to be aligned with the source.
        generated_token_ids: Tokens that another worker generated; the run continues after them.
        max_new_tokens: Maximum number of tokens to generate, including those of other workers.
        eos_token_ids: Tokens that end it.
        num_beams: Number of hypotheses of beam search; 1 means no beam search.
        num_return_sequences: Number of hypotheses to return.
        stop_tokens: Finds tokens that complete a stop string; only with beam search.
        constraint: What the text must follow; None for any text.
        logprobs: Number of likeliest tokens to report at each step; None for no log-probabilities.
        prompt_logprobs: The same for each token of the prompt but the first.
        scored: Number of log-probabilities of the prompt that were reported, on all workers.
        prefix_scope: Runs share cached prefixes only if their scopes are equal.
        prefix_keys: Keys of the blocks of tokens that its prefill reads; None until needed.
        options: The options of the device's graphs, including those above.
        emit: Takes its events; called from the device thread.
        timings: Times of its events.
        cancelled: Set from any thread; the slot is freed at the next chunk boundary.
        phase: Its current phase.
        batch: Its batch, from the beginning of its prefill on.
        row: Its row in the batch.
        generated: Number of tokens generated so far, of each hypothesis, on all workers.
        cached_prompt_tokens: Number of tokens of its prompt that were copied instead of read.
        padded_prompt_tokens: Number of tokens that its prefill computed.
        padded_source_tokens: Number of positions that its encode computed, if it had one.
        proposal_limits: How many proposals its next steps may check.
        uses: The graphs that served it, by the signature asked and the signature served.
        stalled_since: When its current stall began.
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
    cached_prompt_tokens: int = 0
    padded_prompt_tokens: int = 0
    padded_source_tokens: int = 0
    source: Sequence[Any] = field(default=(), repr=False)
    source_key: bytes = b""
    source_length: int = 0
    valid_length: int = 0
    aligns: bool = False
    prompt_logprobs: int | None = None
    scored: int = 0
    prefix_scope: str = ""
    prefix_keys: Sequence[bytes] | None = field(default=None, repr=False)
    generated_token_ids: Sequence[int] = ()
    resumed: bool = False
    suspect: bool = False
    stop_tokens: StopTokens | None = field(default=None, repr=False)
    constraint: Constraint | None = field(default=None, repr=False)
    proposal_limits: ProposalLimits = field(default_factory=ProposalLimits, repr=False)
    uses: dict[tuple[Signature, Signature], GraphUse] = field(default_factory=dict)
    stalled_since: float = 0.0
    _stalled_on: Graph | None = None
    _is_isolated: bool = False

    def __post_init__(self) -> None:
        self.generated = len(self.generated_token_ids)

    @property
    def is_to_be_read(self) -> bool:
        """Whether it has a slot, and its source, prompt or transcript must still be read."""
        return self.phase in (Phase.ENCODE, Phase.PREFILL, Phase.ALIGN)

    @property
    def read_tokens(self) -> int:
        """Number of tokens that its prefill reads; see `State.read_lengths`."""
        if self.has_source:
            return len(self.token_ids) + len(self.generated_token_ids) - 1
        return len(self.token_ids) + max(0, len(self.generated_token_ids) - 1)

    @property
    def scores(self) -> bool:
        """Whether the log-probabilities of its prompt are reported."""
        return self.prompt_logprobs is not None

    @property
    def has_source(self) -> bool:
        """Whether an encoder reads a source for it."""
        return self.source_length > 0

    @property
    def begun(self) -> bool:
        """Whether it has had a token on this worker."""
        return self.generated > len(self.generated_token_ids)

    @property
    def input_usage(self) -> InputUsage:
        """What this worker has read for it."""
        return InputUsage(
            cached_prompt_tokens=self.cached_prompt_tokens,
            padded_prompt_tokens=self.padded_prompt_tokens,
            padded_source_tokens=self.padded_source_tokens,
        )

    @property
    def stalled_on(self) -> Signature | None:
        """The signature of the graph that it waits for, or None."""
        return None if self._stalled_on is None else self._stalled_on.signature

    @property
    def waits_for_graph(self) -> bool:
        """Whether the graph that it waits for is still being made; it may also wait for a slot."""
        return self._stalled_on is not None and not self._stalled_on.has_ended

    @property
    def needs_isolation(self) -> bool:
        """Whether the device must run it alone once it has a slot.

        It does not while its graph is made, but from its first chunk after that.
        """
        if not self.suspect or self.waits_for_graph or self.phase is Phase.ENDED:
            return False
        return self.num_beams > 1 or self.aligns or not self.begun

    def isolate(self) -> bool:
        """Reports that it has the device to itself; returns whether that is new."""
        is_new = not self._is_isolated
        if is_new:
            self._is_isolated = True
            self.emit(Isolated())
        return is_new

    def attended(self, beams: int) -> int:
        """Positions that its next step attends to in a lane of `beams`, newest tokens included."""
        if self.has_source:
            return len(self.token_ids) - 1 + beams * (self.generated + 1)
        return len(self.token_ids) + beams * max(1, self.generated)

    def stall(self, graph: Graph, now: float) -> None:
        """Starts to wait for a graph, or keeps waiting for it."""
        if self._stalled_on is not graph:
            self.resume(now)
            self._stalled_on, self.stalled_since = graph, now
            self._is_isolated = False
            self.emit(Stalled(graph.signature))

    def resume(self, now: float) -> None:
        """Ends the stall, if there is one."""
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
        """Counts a call of a graph."""
        use = GraphUse(asked=asked, served=served, calls=1, device_seconds=seconds)
        known = self.uses.get((asked, served))
        self.uses[asked, served] = use if known is None else known + use


def in_phase(runs: Iterable[Run], phase: Phase) -> list[Run]:
    """The runs that are in a phase."""
    return [run for run in runs if run.phase is phase]


def in_batches(runs: Iterable[Run]) -> list[Run]:
    """The runs that are in batches."""
    return [run for run in runs if run.batch is not None]

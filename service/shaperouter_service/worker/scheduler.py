"""The scheduler of a lane: which runs have slots, in which batch they are, which graph runs next.

The life of a run:

1. `submit` appends it to the queue, or refuses it at once if the queue is full.
2. At the next chunk boundary it gets a free slot. A run that would stall stays in the queue, so
   that the runs behind it need not wait for its compilation.
3. `reader` encodes its source, if the model has an encoder, and reads its prompt; a long prompt in
   pieces, with decode chunks of other runs between them. A run that aligns a transcript ends here.
4. Decode graphs advance all runs together, a few steps a call. Each call uses the ready graph that
   costs least for each run that it covers, and further calls serve the remaining runs. The runs of
   a call are brought into one batch of the graph's shape, so that rows of ended runs cost nothing
   after the chunk.
5. It leaves when it ends, or at the next chunk boundary after it was cancelled.

A run that no ready graph covers stalls until the first graph of its lane, which covers every run,
is ready. Tighter graphs are not requested here: missed savings are recorded, and
`routing.compile_policy` decides what to compile.
"""

import itertools
import threading
import time
from collections.abc import Sequence

from shaperouter_service.decoding import (
    MAX_STEPS,
    Batch,
    BySource,
    Decoded,
    DecodeProgram,
    Logprobs,
)
from shaperouter_service.errors import ServiceError
from shaperouter_service.generation.run_events import FinishReason
from shaperouter_service.graphs import Graph, GraphTable
from shaperouter_service.models import Model
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.text import ConstraintError
from shaperouter_service.traffic_record import TrafficRecorder
from shaperouter_service.worker.backlog import Backlog, LengthEstimator
from shaperouter_service.worker.constraints import allowed_tokens, follow
from shaperouter_service.worker.covers import Covers
from shaperouter_service.worker.fair_queue import FairQueue
from shaperouter_service.worker.input_reader import EncodedSources, InputReader
from shaperouter_service.worker.isolation import participants
from shaperouter_service.worker.placement import place
from shaperouter_service.worker.prefix_cache import PrefixCache
from shaperouter_service.worker.prefixes import Prefixes
from shaperouter_service.worker.results import (
    finish_reason,
    hypotheses,
    new_tokens,
    no_hypothesis,
    no_speech,
)
from shaperouter_service.worker.run import Ended, Failed, Phase, Run, in_batches, in_phase
from shaperouter_service.worker.stop_strings import completing_tokens
from shaperouter_service.worker.vocabularies import unfollowed
from shaperouter_service.worker.watchdog import Watchdog

# Device time of a turn of streams, in one chunk or several: long, so that little time passes
# between chunks, but short enough that streams are smooth and new requests hardly wait for a slot.
CHUNK_SECONDS = 0.1

# Share of the device's time that running streams get while prompts wait to be read. With a larger
# share prompts wait longer, and meanwhile the steps have fewer rows.
STREAMS_SHARE = 0.25

# Seconds that they are owed before they get the device. In shorter turns, more of their steps would
# have few rows, because the prompts of a burst become streams one after the other.
TURN_SECONDS = 0.05

# Turns that they may be owed if all waiting prompts are read by then. A turn just before the last
# prompts of a burst leaves the runs of these prompts to make as many steps later, almost alone.
LAST_PROMPTS = 1.5

# Queued runs that are searched for one that would not stall: enough to get past a burst of one new
# shape, and little work between two chunks.
LOOK_AHEAD = 32


class LaneScheduler:
    """Runs the requests of one model and beam width.

    `submit`, `cancel` and `drain` may be called from any thread, the other methods only from the
    device thread; the attributes are for reading. `admit`, `read` and `decode` are the steps of a
    `turn`; tests replace them to hold a lane before a step.

    Attributes:
        model: The model.
        ladders: The ladders of the model.
        beams: Beam width of the lane, B.
        slots: Number of requests that can run at a time.
        covers: Chooses graphs.
        reader: Reads for the runs.
        encoded: Encoded sources of the model, which its lanes share.
        owed_seconds: Device time that running streams are owed for the prompts read meanwhile.
        decode_padding_tokens: Tokens of padding decoded since the start, one per row and step.
        proposed_tokens: Numbers of proposals checked since the start; see `decoding.speculation`.
        accepted_tokens: Numbers of these that were accepted.
        cache_bytes: Current memory of the key/value caches.
    """

    def __init__(
        self,
        model: Model,
        ladders: Ladders,
        graphs: GraphTable,
        *,
        beams: int,
        queue_limit: int,
        encoded: EncodedSources,
        prefixes: PrefixCache,
        watchdog: Watchdog,
        recorder: TrafficRecorder,
        speculates: bool = False,
    ) -> None:
        """Starts with every slot free.

        Args:
            model: The model.
            ladders: The ladders of the model.
            graphs: The worker's graphs.
            beams: Beam width of the lane.
            queue_limit: Maximum number of runs that wait for a slot.
            encoded: Encoded sources of the model, which its lanes share.
            prefixes: The cache of prefixes.
            watchdog: Watches the calls of graphs.
            recorder: Records the traffic.
            speculates: Whether steps check proposals from runs' own tokens where graphs can.
        """
        self.model = model
        self.ladders = ladders
        self.beams = beams
        self.slots = ladders.lane(beams).decode_rows.maximum
        self.decode_padding_tokens = 0
        self.proposed_tokens = self.accepted_tokens = BySource(0, 0)
        self._speculates = speculates
        self.cache_bytes = 0
        self._graphs = graphs
        self.covers = Covers(model.name, ladders, graphs, beams=beams)
        self.encoded = encoded
        self._prefixes = Prefixes(model, prefixes, piece=ladders.prefill_piece)
        self._watchdog = watchdog
        self._recorder = recorder
        self._lock = threading.Lock()
        self._queue = FairQueue(model.name, queue_limit)
        # Why it accepts no further runs, if it does not.
        self._refusal: ServiceError | None = None
        self._lengths = LengthEstimator()
        # The runs that have a slot, in order of admission.
        self._runs: list[Run] = []
        self.reader = InputReader(
            model,
            graphs,
            self.covers,
            beams=beams,
            encoded=encoded,
            prefixes=self._prefixes,
            watchdog=watchdog,
            recorder=recorder,
            end=self._end,
        )
        self.owed_seconds = 0.0
        self._turn_seconds = CHUNK_SECONDS

    def submit(self, run: Run) -> None:
        """Queues a run.

        Raises:
            QueueFullError: There is no room.
            ServiceError: The lane is draining, for the reason of `drain`.
        """
        with self._lock:
            if self._refusal is not None:
                raise self._refusal.with_traceback(None)
            self._queue.put(run)

    @property
    def backlog(self) -> Backlog:
        """The work left for the runs of this lane."""
        with self._lock:
            runs = [*self._queue, *self._runs]
        return Backlog.of(runs, self._lengths)

    def cancel(self, run: Run) -> None:
        """Drops a run at the next chunk boundary, unless it has ended."""
        run.cancelled = True

    def drain(self, reason: ServiceError) -> None:
        """Stops accepting runs and returns the queued ones; runs with a slot continue.

        Args:
            reason: The error of both.
        """
        with self._lock:
            self._refusal = reason

    @property
    def queued(self) -> int:
        """Number of runs that wait for a slot."""
        return len(self._queue)

    @property
    def active_slots(self) -> int:
        """Number of slots in use."""
        return len(self._runs)

    @property
    def isolates(self) -> bool:
        """Whether one of its runs needs the device to itself."""
        return any(run.needs_isolation for run in self._runs)

    @property
    def waits_for_graph(self) -> bool:
        """Whether a run waits for a graph to be compiled."""
        with self._lock:
            return any(run.waits_for_graph for run in [*self._queue, *self._runs])

    def turn(self) -> bool:
        """Admits runs, makes at most one call that reads, and decodes one chunk.

        Returns:
            Whether the device did anything. If not, only an event can change that.
        """
        if not self._runs and not self.queued:
            # Most lanes are empty, and take a turn with each turn of another one.
            self.owed_seconds = 0.0
            self._measure()
            return False
        self._drop_cancelled(keeps=True)
        self._return_queued()
        self.admit()
        self.reader.reuse_sources(self._runs)
        runs = participants(self._runs, self.reader.half_read)
        read = self.read(runs)
        decoded = self.decode(self._without_waiting(runs) if read else runs)
        if not read and not decoded:
            # Streams that wait for a compilation cannot use the time that they are owed.
            self.owed_seconds = 0.0
            read = self.read(runs)
        self._measure()
        return read or decoded

    def _measure(self) -> None:
        batches = {run.batch for run in self._runs if run.batch is not None}
        self.cache_bytes = sum(batch.caches.bytes for batch in batches)
        if self.beams == 1:
            # Counted once, because all lanes of the model share them.
            self.cache_bytes += self.encoded.size

    def let_go(self) -> None:
        """Drops cancelled runs and, if the lane drains, returns the queued ones.

        Takes no device time, so the prefixes of cancelled runs are not cached.
        """
        self._drop_cancelled(keeps=False)
        self._return_queued()

    def _drop_cancelled(self, *, keeps: bool) -> None:
        with self._lock:
            dropped = self._queue.drop(lambda run: run.cancelled)
        for run in dropped:
            self._leave(run)
        for run in [run for run in self._runs if run.cancelled]:
            # Its caller may ask again, for example with another question about the same text.
            (self._leave_and_keep if keeps else self._leave)(run)
        self.reader.drop_cancelled()

    def _return_queued(self) -> None:
        with self._lock:
            refusal = self._refusal
            if refusal is None:
                return
            waiting = self._queue.take_all()
        for run in waiting:
            self._fail(run, refusal)

    # --- Admission ---------------------------------------------------------------------------

    def admit(self) -> None:
        """Gives free slots to queued runs in their order, except those that would stall."""
        with self._lock:
            waiting = list(itertools.islice(self._queue, LOOK_AHEAD))
        for run in waiting:
            if len(self._runs) == self.slots:
                return
            now = time.monotonic()
            missing = self.covers.missing(run)
            if isinstance(missing, Graph):
                run.stall(missing, now)
                continue
            if missing is not None:
                with self._lock:
                    self._queue.remove(run)
                self._fail(run, missing)
                continue
            with self._lock:
                # First, so that the run is always in one of both; else its model could be unloaded.
                self._runs.append(run)
                self._queue.start(run)
            run.resume(now)
            run.timings.admitted = now
            run.phase = Phase.ENCODE if run.has_source else Phase.PREFILL
            self._record(run)

    def _record(self, run: Run) -> None:
        """Records what a run asks for, unless another worker has recorded it."""
        if run.resumed:
            return
        if run.has_source:
            self._recorder.source(self.model.name, run.source_length)
        if run.aligns:
            return
        # Ladders of prompts are fitted to what prefill graphs read.
        if run.read_tokens and not run.scores:
            self._recorder.prompt(self.model.name, run.read_tokens)
        if run.max_new_tokens:
            self._recorder.run(self.model.name, self.beams, self.covers.positions(run))

    # --- Reading and decoding ----------------------------------------------------------------

    def read(self, runs: Sequence[Run]) -> bool:
        """Makes one call that reads, if a run needs it and no turn of streams is due."""
        streams = in_phase(runs, Phase.DECODE)
        if streams and self._is_turn_due(runs):
            return False
        seconds = self.reader.read(runs)
        if seconds is None:
            return False
        self.owed_seconds = self.owed_seconds + _owed(seconds) if streams else 0.0
        return True

    def _is_turn_due(self, runs: Sequence[Run]) -> bool:
        """Whether running streams get the device although prompts wait to be read."""
        if self.owed_seconds < TURN_SECONDS:
            return False
        owed_then = self.owed_seconds + _owed(self.covers.reading_seconds(runs))
        return owed_then > LAST_PROMPTS * TURN_SECONDS

    def _without_waiting(self, runs: Sequence[Run]) -> Sequence[Run]:
        """Leaves out streams that wait for their turn while prompts are read."""
        if not any(run.is_to_be_read for run in runs) or self._is_turn_due(runs):
            return runs
        return [run for run in runs if run.phase is not Phase.DECODE or run.generated == 0]

    def decode(self, runs: Sequence[Run]) -> bool:
        """Decodes a chunk of the runs that ready graphs cover; returns whether there were any."""
        prompts_wait = any(run.is_to_be_read for run in runs)
        only_read = [run for run in in_phase(runs, Phase.DECODE) if run.max_new_tokens == 0]
        for run in only_read:
            run.timings.first_token = time.monotonic()
            self._end(run, Ended(FinishReason.LENGTH), run.timings.first_token)
        runs = in_phase(runs, Phase.DECODE)
        if not runs:
            return bool(only_read)
        asked = self.covers.tight_decode(runs)
        self._recorder.record_request(asked)
        owed = self.owed_seconds if prompts_wait else CHUNK_SECONDS
        self._turn_seconds = min(CHUNK_SECONDS, owed)
        rest = runs
        while rest:
            graph, covered = self.covers.best_decode(rest)
            if graph is None:
                break
            now = time.monotonic()
            for run in covered:
                run.resume(now)
            self._call(covered, asked, graph, share=len(covered) / len(runs))
            rest = [run for run in rest if run not in covered]
        for run in rest:
            self._wait(run)
        return len(rest) < len(runs)

    def _call(self, runs: list[Run], asked: Signature, graph: Graph, *, share: float) -> None:
        program = graph.program
        if not isinstance(program, DecodeProgram):
            raise TypeError(f"{graph.signature} is not a decode graph")
        began = time.monotonic()
        # Runs with an encoded source may share a batch with runs whose prompts are not read yet.
        batch = place(runs, in_batches(self._runs), program.shape)
        # The first token of a run takes hardly any time, because prefill has computed its logits,
        # so it is sent first. A run with a source needs a step for it.
        fresh = [run for run in runs if run.generated == 0 and not run.has_source]
        advanced = fresh or runs
        completing, allowed = completing_tokens(advanced, batch.state), allowed_tokens(advanced)
        started = time.monotonic()
        steps = 1 if fresh else self._steps(runs, graph, self._turn_seconds * share)
        with self._watchdog.watching(graph.signature, advanced):
            decoded = program(
                batch,
                [run.row for run in advanced],
                steps,
                completing,
                allowed,
                proposals=self._proposals(advanced),
            )
        now = time.monotonic()
        # A chunk ends early once all its runs have ended.
        made = decoded.steps
        counted = None if fresh else made
        device_seconds = self._graphs.record(graph, now - started, steps=counted)
        if not fresh:
            self.covers.record_missed_savings(asked, graph, now - started, share=share, steps=made)
            used = sum(run.num_beams for run in runs)
            self.decode_padding_tokens += (program.rows * self.beams - used) * made
        # Streams do not pay for the first step of runs with a source, which takes as long as any
        # other. They pay for first tokens of other runs, which take little time.
        if fresh or any(run.generated for run in advanced):
            self.owed_seconds = max(0.0, self.owed_seconds - (now - began))
        for run in advanced:
            run.use(asked, graph.signature, device_seconds)
            self._adjust(run, batch, decoded)
            self._deliver(run, batch, decoded.logprobs, now)

    def _steps(self, runs: Sequence[Run], graph: Graph, seconds: float) -> int:
        """Number of steps of the next chunk: at most what its runs need."""
        if any(run.stop_tokens is not None or run.constraint is not None for run in runs):
            return 1
        furthest = max(run.attended(self.beams) for run in runs)
        room = (graph.signature.length - furthest) // self.beams + 1
        longest = max(run.max_new_tokens - run.generated for run in runs)
        return min(self.chunk_steps(graph, seconds), room, longest)

    def _proposals(self, runs: Sequence[Run]) -> dict[int, tuple[int, int]]:
        """Maximum numbers of proposals for the rows of runs that take part in speculation."""
        repeats, drafts = self._speculates, self.model.draft is not None
        if not repeats and not drafts:
            return {}
        return {
            run.row: (
                run.proposal_limits.ngram.value if repeats else 0,
                run.proposal_limits.draft.value if drafts else 0,
            )
            for run in runs
            # What a constraint allows is known for one token only.
            if run.constraint is None
        }

    def _adjust(self, run: Run, batch: Batch, decoded: Decoded) -> None:
        """Counts the proposals of a run, and adjusts how many its next steps check."""
        proposed, accepted = decoded.proposed.of_row(run.row), decoded.accepted.of_row(run.row)
        self.proposed_tokens = self.proposed_tokens.plus(proposed)
        self.accepted_tokens = self.accepted_tokens.plus(accepted)
        tokens = int(batch.state.lengths[run.row]) - len(run.token_ids) - run.generated
        run.proposal_limits.observe(tokens=tokens, proposed=proposed, accepted=accepted)

    def chunk_steps(self, graph: Graph, seconds: float) -> int:
        """Number of steps that take this long, at least one."""
        if graph.step_seconds is None:
            return 1
        return max(1, min(MAX_STEPS, round(seconds / graph.step_seconds)))

    # --- Results and ends --------------------------------------------------------------------

    def _deliver(self, run: Run, batch: Batch, logprobs: Logprobs, now: float) -> None:
        """Sends a run its new tokens, and ends it if they are its last."""
        if not run.begun:
            run.timings.first_token = now
        ended = batch.state.remaining[run.row] <= 0
        if not ended:
            try:
                follow(run, batch.state)
            except ConstraintError as error:
                self._fail(run, unfollowed(error, run.generated))
                return
        if self.beams > 1:
            run.generated = int(batch.state.lengths[run.row]) - len(run.token_ids)
            if ended:
                found = hypotheses(run, batch.state)
                if not found:
                    self._fail(run, no_hypothesis(run))
                    return
                end = Ended(found[0].finish_reason, found, no_speech=no_speech(run, batch.state))
                self._end(run, end, now)
            return
        new = new_tokens(run, batch.state, logprobs)
        run.generated += len(new.token_ids)
        run.emit(new)
        if ended:
            reason = finish_reason(run, new.token_ids)
            self._end(run, Ended(reason, no_speech=no_speech(run, batch.state)), now)
        elif run.constraint is not None and run.constraint.is_complete:
            self._end(run, Ended(FinishReason.STOP), now)

    def _end(self, run: Run, end: Ended, now: float) -> None:
        run.timings.ended = now
        if run.max_new_tokens:
            self._lengths.observe(run.generated, run.max_new_tokens)
        self._leave_and_keep(run, end)

    def _wait(self, run: Run) -> None:
        """Stalls a run that no ready graph covers any more."""
        missing = self.covers.missing(run)
        if isinstance(missing, Graph):
            run.stall(missing, time.monotonic())
        elif missing is not None:
            self._fail(run, missing)

    def _fail(self, run: Run, error: ServiceError) -> None:
        self._leave(run)
        run.emit(Failed(error))

    def _leave_and_keep(self, run: Run, end: Ended | None = None) -> None:
        """Ends a run, and caches its prompt and text once its caller has the answer."""
        batch, row = run.batch, run.row
        was_read = run.phase is Phase.DECODE
        self._leave(run)
        if end is not None:
            run.emit(end)
        if was_read and batch is not None:
            self._prefixes.keep(run, batch, row)

    def _leave(self, run: Run) -> None:
        run.resume(time.monotonic())
        self.reader.keep_source(run)
        if run.phase is not Phase.QUEUED:
            self._runs.remove(run)
            with self._lock:
                self._queue.end(run)
        run.phase, run.batch = Phase.ENDED, None


def _owed(seconds: float) -> float:
    """Device time that running streams are owed for reading that took so long."""
    return seconds * STREAMS_SHARE / (1 - STREAMS_SHARE)

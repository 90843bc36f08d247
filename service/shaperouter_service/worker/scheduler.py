"""The scheduler of a lane: who runs, in which batch, and which graph runs next.

A run's life here:

1. `submit` queues it, bounded; a full queue refuses at once.
2. At the next chunk boundary it gets a free slot. A run that would stall there waits in the queue,
   so that those behind it need not wait for its compilation.
3. `reader` has its source encoded, if the model has an encoder, and its prompt read: a long one in
   pieces, with chunks of the others' decoding between them.
4. Decode graphs advance all runs together, a few steps a call. Each call takes the ready graph
   that costs least for each run it covers; what it leaves is covered by further calls. The runs of
   a call are brought into one batch of the graph's shape, so rows of runs that have ended cost
   nothing for longer than a chunk.
   What is aligned has its tokens already: `reader` ends it.
5. It leaves at its end, or at the next chunk boundary after it was cancelled.

A run that no ready graph covers stalls, alone, until the first graph of its lane is there, which
covers every run. Tighter graphs are not asked for here: what their absence costs is counted, and
who reads the counts decides (see `routing.policy`).
"""

import itertools
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from shaperouter_service.decoding import MAX_STEPS, Batch, DecodeProgram, Logprobs
from shaperouter_service.errors import ServiceError, StoppingError
from shaperouter_service.graphs import Graph, GraphTable
from shaperouter_service.models import Model
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.traffic_record import TrafficRecorder
from shaperouter_service.worker.covers import Covers
from shaperouter_service.worker.early_ends import EarlyEnds
from shaperouter_service.worker.encoded_sources import EncodedSources
from shaperouter_service.worker.fair_queue import FairQueue
from shaperouter_service.worker.isolation import participants
from shaperouter_service.worker.placement import place
from shaperouter_service.worker.reader import Reader
from shaperouter_service.worker.results import (
    finish_reason,
    hypotheses,
    new_tokens,
    no_hypothesis,
    no_speech,
)
from shaperouter_service.worker.run import Ended, Failed, Phase, Run, in_batches, in_phase
from shaperouter_service.worker.stop_strings import completing_tokens
from shaperouter_service.worker.watchdog import Watchdog

# Device time a chunk should take: as long as a stream does not look choppy and a new request does
# not wait noticeably for its slot, so that little time is spent between chunks.
CHUNK_SECONDS = 0.1

# Of the device's time, what running streams get while prompts wait to be read. The more it is, the
# longer those wait, and the fewer rows the steps have that are made meanwhile.
STREAMS_SHARE = 0.25

# Waiting runs that are looked at for one that would not stall: enough to get past a burst of one
# new shape, and little work between two chunks.
LOOK_AHEAD = 32


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """What is still to be done for the runs of a lane, those that wait included.

    Attributes:
        tokens: Expected to be made.
        sources: Places of each source that is to be read.
        prompts: Tokens of each prompt that is to be read.
    """

    tokens: int
    sources: Sequence[int]
    prompts: Sequence[int]


class LaneScheduler:
    """Runs the requests of one model and beam width.

    `submit`, `cancel` and `drain` may be called from any thread, `turn` and `let_go` only from the
    device thread; the attributes are for reading.

    Attributes:
        model: The model.
        ladders: The shapes its graphs can have.
        beams: Beam width of the lane, B.
        slots: Requests that run at a time.
        reader: What reads for its runs.
        decode_padding_tokens: Sequences decoded for nobody since the start, one for each step.
        cache_bytes: Memory of the key/value caches now.
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
        watchdog: Watchdog,
        recorder: TrafficRecorder,
    ) -> None:
        """Starts with every slot free.

        Args:
            model: The model.
            ladders: The shapes its graphs can have.
            graphs: The worker's graphs.
            beams: Beam width of the lane.
            queue_limit: Most runs that wait for a slot.
            encoded: Sources of the model, which its lanes share.
            watchdog: Watches the calls of graphs.
            recorder: Told what is asked for.
        """
        self.model = model
        self.ladders = ladders
        self.beams = beams
        self.slots = ladders.lane(beams).decode_rows.maximum
        self.decode_padding_tokens = 0
        self.cache_bytes = 0
        self._graphs = graphs
        self._covers = Covers(model.name, ladders, graphs, beams=beams)
        self._encoded = encoded
        self._watchdog = watchdog
        self._recorder = recorder
        self._lock = threading.Lock()
        self._queue = FairQueue(model.name, queue_limit)
        self._draining = False
        self._early_ends = EarlyEnds()
        # Those that have a slot, in order of admission.
        self._runs: list[Run] = []
        self.reader = Reader(
            model,
            graphs,
            self._covers,
            beams=beams,
            encoded=encoded,
            watchdog=watchdog,
            recorder=recorder,
            end=self._end,
        )
        # Device time that running streams are to get before the next prefill.
        self._owed_seconds = 0.0

    def submit(self, run: Run) -> None:
        """Queues a run.

        Raises:
            QueueFullError: There is no room.
            StoppingError: The lane drains.
        """
        with self._lock:
            if self._draining:
                raise StoppingError
            self._queue.put(run)

    @property
    def backlog(self) -> Backlog:
        """What is still to be done for the runs that are here."""
        with self._lock:
            runs = [*self._queue, *self._runs]
        unread = [run for run in runs if run.phase is not Phase.DECODE]
        return Backlog(
            tokens=math.ceil(
                self._early_ends.share * sum(run.max_new_tokens - run.generated for run in runs)
            ),
            sources=[
                run.source_length
                for run in unread
                if run.has_source and run.phase in (Phase.QUEUED, Phase.ENCODE)
            ],
            prompts=[run.read_tokens for run in unread if run.read_tokens],
        )

    def cancel(self, run: Run) -> None:
        """Has a run dropped; nothing happens if it has ended."""
        run.cancelled = True

    def drain(self) -> None:
        """Takes no more runs, and gives back those that wait; what has a slot goes on."""
        with self._lock:
            self._draining = True

    @property
    def queued(self) -> int:
        """Runs that wait for a slot."""
        return len(self._queue)

    @property
    def active_slots(self) -> int:
        """Slots in use."""
        return len(self._runs)

    @property
    def isolates(self) -> bool:
        """Whether one of its runs needs the device to itself."""
        return any(run.needs_isolation for run in self._runs)

    def turn(self) -> bool:
        """Does what is due between two chunks, one call that reads at most, and one chunk.

        Returns:
            Whether the device did anything; if not, only an event can change that.
        """
        self.let_go()
        self._admit()
        self.reader.reuse_sources(self._runs)
        runs = participants(self._runs, self.reader.half_read)
        read = self._read_next(runs)
        decoded = self._decode_chunk(runs)
        if not read and not decoded:
            # Streams that wait for a compilation have no use for the time they are owed.
            self._owed_seconds = 0.0
            read = self._read_next(runs)
        batches = {run.batch for run in self._runs if run.batch is not None}
        self.cache_bytes = sum(batch.caches.bytes for batch in batches)
        if self.beams == 1:
            # All lanes have them in common.
            self.cache_bytes += self._encoded.size
        return read or decoded

    def let_go(self) -> None:
        """Drops the runs that were cancelled and, if the lane drains, gives back those that wait.

        Device thread only; it takes none of the device's time.
        """
        self._drop_cancelled()
        self._give_back()

    def _drop_cancelled(self) -> None:
        with self._lock:
            dropped = self._queue.drop(lambda run: run.cancelled)
        for run in [*dropped, *(run for run in self._runs if run.cancelled)]:
            self._leave(run)
        self.reader.drop_cancelled()

    def _give_back(self) -> None:
        with self._lock:
            if not self._draining:
                return
            waiting = self._queue.take_all()
        for run in waiting:
            self._fail(run, StoppingError())

    # --- Admission ---------------------------------------------------------------------------

    def _admit(self) -> None:
        """Gives free slots to the runs that wait, as they are due, but for those that stall."""
        with self._lock:
            waiting = list(itertools.islice(self._queue, LOOK_AHEAD))
        for run in waiting:
            if len(self._runs) == self.slots:
                return
            now = time.monotonic()
            missing = self._covers.missing(run)
            if isinstance(missing, Graph):
                run.stall(missing, now)
                continue
            if missing is not None:
                with self._lock:
                    self._queue.remove(run)
                self._fail(run, missing)
                continue
            with self._lock:
                self._queue.start(run)
            run.resume(now)
            run.timings.admitted = now
            run.phase = Phase.ENCODE if run.has_source else Phase.PREFILL
            self._runs.append(run)
            self._record(run)

    def _record(self, run: Run) -> None:
        """Records what a run asks for, unless another worker has recorded it."""
        if run.resumed:
            return
        if run.has_source:
            self._recorder.source(self.model.name, run.source_length)
        if run.aligns:
            return
        if run.read_tokens:
            self._recorder.prompt(self.model.name, run.read_tokens)
        self._recorder.run(self.model.name, self.beams, self._covers.places(run))

    # --- Reading -----------------------------------------------------------------------------

    def _read_next(self, runs: Sequence[Run]) -> bool:
        """Makes one call that reads, if something waits for it and it is its turn."""
        streams = in_phase(runs, Phase.DECODE)
        if streams and self._owed_seconds > 0:
            return False
        seconds = self.reader.read(runs)
        if seconds is None:
            return False
        self._owed_seconds = seconds * STREAMS_SHARE / (1 - STREAMS_SHARE) if streams else 0.0
        return True

    # --- Decode ------------------------------------------------------------------------------

    def _decode_chunk(self, runs: Sequence[Run]) -> bool:
        runs = in_phase(runs, Phase.DECODE)
        if not runs:
            return False
        asked = self._covers.tight_decode(runs)
        self._recorder.asked(asked)
        rest = runs
        while rest:
            graph, covered = self._covers.best_decode(rest)
            if graph is None:
                break
            now = time.monotonic()
            for run in covered:
                run.resume(now)
            self._decode(covered, asked, graph, share=len(covered) / len(runs))
            rest = [run for run in rest if run not in covered]
        for run in rest:
            self._wait(run)
        return len(rest) < len(runs)

    def _decode(self, runs: list[Run], asked: Signature, graph: Graph, *, share: float) -> None:
        program = graph.program
        if not isinstance(program, DecodeProgram):
            raise TypeError(f"{graph.signature} is no decode graph")
        began = time.monotonic()
        # Those whose prompts are still to be read may lie beside others that were encoded too.
        batch = place(runs, in_batches(self._runs), program.shape)
        # First tokens take no time to speak of, and are sent before anything else is done; those
        # with a source take a step like all others.
        fresh = [run for run in runs if run.generated == 0 and not run.has_source]
        advanced = fresh or runs
        completing = completing_tokens(advanced, batch.state)
        started = time.monotonic()
        steps = 1 if fresh else self._steps(runs, graph)
        with self._watchdog.watching(graph.signature, advanced):
            logprobs = program(batch, [run.row for run in advanced], steps, completing)
        now = time.monotonic()
        # A chunk in which every run ends is left early.
        made = max(
            int(batch.state.lengths[run.row]) - len(run.token_ids) - run.generated
            for run in advanced
        )
        if fresh:
            self._graphs.record(graph, now - started)
        else:
            self._graphs.record(graph, now - started, steps=made)
            self._covers.miss(asked, graph, now - started, share=share, steps=made)
            used = sum(run.num_beams for run in runs)
            self.decode_padding_tokens += (program.rows * self.beams - used) * made
        self._owed_seconds = max(0.0, self._owed_seconds - (now - began))
        for run in advanced:
            run.use(asked, graph.signature, now - started)
            self._deliver(run, batch, logprobs, now)

    def _steps(self, runs: Sequence[Run], graph: Graph) -> int:
        """Steps of the next chunk: no longer than a chunk should take, or than anyone needs."""
        if any(run.stop_tokens is not None for run in runs):
            return 1
        furthest = max(run.attended(self.beams) for run in runs)
        room = (graph.signature.length - furthest) // self.beams + 1
        longest = max(run.max_new_tokens - run.generated for run in runs)
        return min(self._chunk_steps(graph), room, longest)

    def _chunk_steps(self, graph: Graph) -> int:
        if graph.step_seconds is None:
            return 1
        # While prompts are read, what the streams are owed and no more.
        seconds = min(CHUNK_SECONDS, self._owed_seconds or CHUNK_SECONDS)
        return max(1, min(MAX_STEPS, round(seconds / graph.step_seconds)))

    # --- Results and ends --------------------------------------------------------------------

    def _deliver(self, run: Run, batch: Batch, logprobs: Logprobs, now: float) -> None:
        """Sends a run what the last call made for it, and ends it if that was all."""
        if not run.begun:
            run.timings.first_token = now
        ended = batch.state.remaining[run.row] <= 0
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

    def _end(self, run: Run, end: Ended, now: float) -> None:
        run.timings.ended = now
        if not run.aligns:
            self._early_ends.ended(run.generated, run.max_new_tokens)
        self._leave(run)
        run.emit(end)

    def _wait(self, run: Run) -> None:
        """Has a run that outgrew every ready graph wait for one."""
        missing = self._covers.missing(run)
        if isinstance(missing, Graph):
            run.stall(missing, time.monotonic())
        elif missing is not None:
            self._fail(run, missing)

    def _fail(self, run: Run, error: ServiceError) -> None:
        self._leave(run)
        run.emit(Failed(error))

    def _leave(self, run: Run) -> None:
        run.resume(time.monotonic())
        self.reader.keep_source(run)
        if run.phase is not Phase.QUEUED:
            self._runs.remove(run)
            with self._lock:
                self._queue.end(run)
        run.phase, run.batch = Phase.ENDED, None

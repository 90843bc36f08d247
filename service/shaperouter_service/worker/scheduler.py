"""The scheduler of a lane: who runs, in which batch, and which graph runs next.

A run's life here:

1. `submit` queues it, bounded; a full queue refuses at once.
2. At the next chunk boundary it gets a free slot. A run that would stall there waits in the queue,
   so that those behind it need not wait for its compilation.
3. If the model has an encoder, an encode graph reads its source, together with others of the same
   rung.
   A prefill graph reads its prompt: together with other prompts of the same rung, or a long one in
   pieces, with chunks of the others' decoding between them.
4. Decode graphs advance all runs together, a few steps a call. Each call takes the ready graph
   that costs least for each run it covers; what it leaves is covered by further calls. The runs of
   a call are brought into one batch of the graph's shape, so rows of runs that have ended cost
   nothing for longer than a chunk.
   What is aligned has its tokens already: in place of 3's prompt and 4, an align graph reads it.
5. It leaves at its end, or at the next chunk boundary after it was cancelled.

A run that no ready graph covers stalls, alone, until the first graph of its lane is there, which
covers every run. Tighter graphs are not asked for here: what their absence costs is counted, and
who reads the counts decides (see `routing.policy`).
"""

import itertools
import math
import threading
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from shaperouter_service.decoding import (
    MAX_STEPS,
    AlignProgram,
    Batch,
    Caches,
    DecodeProgram,
    EncodeProgram,
    Logprobs,
    PrefillProgram,
)
from shaperouter_service.errors import (
    ServiceError,
    StoppingError,
)
from shaperouter_service.graphs import Graph, GraphTable, NoCover
from shaperouter_service.models import Model
from shaperouter_service.record import TrafficRecorder
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.worker.covers import Covers
from shaperouter_service.worker.early_ends import EarlyEnds
from shaperouter_service.worker.encoded_sources import EncodedSources
from shaperouter_service.worker.fair_queue import FairQueue
from shaperouter_service.worker.placement import place
from shaperouter_service.worker.results import (
    aligned,
    finish_reason,
    hypotheses,
    new_tokens,
    no_speech,
)
from shaperouter_service.worker.run import Ended, Failed, FinishReason, Phase, Run
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


@dataclass(kw_only=True)
class _Reading:
    """Prompts that are being read: `start` tokens of each have been.

    `together` is the tight cover of all that could have been read in one call, of which these are a
    `share`.
    """

    graph: Graph
    asked: Signature
    together: Signature
    share: float
    runs: list[Run]
    batch: Batch
    start: int = 0


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

    `submit`, `cancel` and `drain` may be called from any thread, `turn` only from the device
    thread; the attributes are for reading.

    Attributes:
        model: The model.
        ladders: The shapes its graphs can have.
        beams: Beam width of the lane, B.
        slots: Requests that run at a time.
        encode_padding_tokens: Places of padding that encodes computed since the start.
        prefill_padding_tokens: Tokens of padding that prefills computed since the start.
        align_padding_tokens: Tokens of padding that aligning computed since the start.
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
        self.encode_padding_tokens = 0
        self.prefill_padding_tokens = 0
        self.align_padding_tokens = 0
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
        self._reading: _Reading | None = None
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

    def turn(self) -> bool:
        """Does what is due between two chunks, one call that reads at most, and one chunk.

        Returns:
            Whether the device did anything; if not, only an event can change that.
        """
        self._drop_cancelled()
        self._give_back()
        self._admit()
        self._reuse_sources()
        read = self._read_next()
        decoded = self._decode_chunk()
        if not read and not decoded:
            # Streams that wait for a compilation have no use for the time they are owed.
            self._owed_seconds = 0.0
            read = self._read_next()
        batches = {run.batch for run in self._runs if run.batch is not None}
        self.cache_bytes = sum(batch.caches.bytes for batch in batches)
        if self.beams == 1:
            # All lanes have them in common.
            self.cache_bytes += self._encoded.size
        return read or decoded

    def _in_phase(self, phase: Phase) -> list[Run]:
        return [run for run in self._runs if run.phase is phase]

    def _drop_cancelled(self) -> None:
        with self._lock:
            dropped = self._queue.drop(lambda run: run.cancelled)
        for run in [*dropped, *(run for run in self._runs if run.cancelled)]:
            self._leave(run)
        if self._reading is not None:
            self._reading.runs = [run for run in self._reading.runs if not run.cancelled]
            if not self._reading.runs:
                self._reading = None

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

    def _read_next(self) -> bool:
        """Makes one call that reads sources or prompts, if some wait and it is their turn."""
        streams = self._in_phase(Phase.DECODE)
        if streams and self._owed_seconds > 0:
            return False
        # What has been encoded takes memory until its run ends: so sources come last.
        seconds = self._align()
        if seconds is None and self._reading is None:
            self._reading = self._begin_reading()
        if seconds is None:
            seconds = self._encode() if self._reading is None else self._read(self._reading)
        if seconds is None:
            return False
        self._owed_seconds = seconds * STREAMS_SHARE / (1 - STREAMS_SHARE) if streams else 0.0
        return True

    def _reuse_sources(self) -> None:
        """Gives runs what was encoded for others about the same sources."""
        for run in self._in_phase(Phase.ENCODE):
            caches = self._encoded_before(run.source_key) if run.source_key else None
            if caches is None:
                continue
            length = max(1, run.read_tokens)
            batch = Batch.of_source(self.model, caches, beams=self.beams, length=length)
            self._begin(run, batch, 0)
            run.timings.prefill_started = time.monotonic()
            run.phase = self._after_encode(run)

    def _encoded_before(self, key: bytes) -> Caches | None:
        """What was encoded of a source, of which nobody else may use it; None if nothing was."""
        for run in self._placed():
            if run.source_key == key and run.batch is not None:
                return run.batch.caches.copy_source(run.row)
        return self._encoded.take(key)

    @staticmethod
    def _after_encode(run: Run) -> Phase:
        if run.aligns:
            return Phase.ALIGN
        return Phase.PREFILL if run.read_tokens else Phase.DECODE

    def _encode(self) -> float | None:
        """Reads some sources; returns how long it took in seconds, None if there are none."""
        # Those of the same source follow the first of them.
        distinct: dict[Hashable, Run] = {}
        for run in self._in_phase(Phase.ENCODE):
            distinct.setdefault(run.source_key or run, run)
        waiting = list(distinct.values())
        if not waiting:
            return None
        alike = self._covers.sources_alike(waiting)
        together = self._covers.tight_encode(alike)
        self._recorder.asked(together)
        runs = alike[: self._covers.rows_to_read(together)]
        asked = self._covers.tight_encode(runs)
        graph = self._graphs.cover(asked)
        # Always one, as for prompts.
        if isinstance(graph, NoCover):
            return None
        signature, program = graph.signature, graph.program
        if not isinstance(program, EncodeProgram):
            raise TypeError(f"{signature} is no encode graph")
        batch = Batch(
            self.model,
            rows=signature.rows,
            beams=self.beams,
            # No graph looks at the tape: it keeps the tokens until one does.
            length=max(1, *(run.read_tokens for run in runs)),
            source_length=signature.length,
        )
        started = time.monotonic()
        for row, run in enumerate(runs):
            self._begin(run, batch, row)
            run.timings.prefill_started = started
        with self._watchdog.watching(signature):
            program(batch, {run.row: run.source for run in runs})
        seconds = time.monotonic() - started
        self._graphs.record(graph, seconds, steps=1)
        self._covers.miss(together, graph, seconds, share=len(runs) / len(alike))
        self.encode_padding_tokens += signature.rows * signature.length - sum(
            run.heard_length or run.source_length for run in runs
        )
        for run in runs:
            run.padded_source_tokens = signature.length
            run.use(asked, signature, seconds)
            run.phase = self._after_encode(run)
        return seconds

    def _align(self) -> float | None:
        """Aligns a transcript; returns how long it took in seconds, None if there is none."""
        waiting = self._in_phase(Phase.ALIGN)
        if not waiting:
            return None
        run = waiting[0]
        asked = self._covers.tight_align(run)
        self._recorder.asked(asked)
        graph = self._graphs.cover(asked)
        # Always one, as for prompts.
        if isinstance(graph, NoCover):
            return None
        signature, program = graph.signature, graph.program
        if not isinstance(program, AlignProgram):
            raise TypeError(f"{signature} is no align graph")
        batch = place([run], self._placed(), program.shape)
        started = time.monotonic()
        with self._watchdog.watching(signature):
            found = program(batch, {run.row: run.token_ids})
        now = time.monotonic()
        self._graphs.record(graph, now - started, steps=1)
        self._covers.miss(asked, graph, now - started, share=1.0)
        self.align_padding_tokens += signature.length - len(run.token_ids)
        run.use(asked, signature, now - started)
        run.timings.first_token = now
        self._end(run, Ended(FinishReason.EOS, aligned=aligned(run, found)), now)
        return now - started

    def _placed(self) -> list[Run]:
        """The runs that are in batches, beside which others may lie."""
        return [run for run in self._runs if run.batch is not None]

    @staticmethod
    def _begin(run: Run, batch: Batch, row: int) -> None:
        """Puts a run into the first batch it is in."""
        batch.begin(row, run.token_ids, run.options, run.generated_token_ids, run.source_length)
        run.batch, run.row = batch, row

    def _begin_reading(self) -> _Reading | None:
        waiting = self._in_phase(Phase.PREFILL)
        if not waiting:
            return None
        alike = self._covers.alike(waiting)
        together = self._covers.tight_prefill(alike)
        self._recorder.asked(together)
        runs = alike[: self._covers.rows_to_read(together)]
        asked = self._covers.tight_prefill(runs)
        graph = self._graphs.cover(asked)
        # Always one: runs have a cover when they get their slot, and ready graphs stay ready.
        if isinstance(graph, NoCover):
            return None
        program = graph.program
        if not isinstance(program, PrefillProgram):
            raise TypeError(f"{graph.signature} is no prefill graph")
        if runs[0].has_source:
            # They have been encoded.
            batch = place(runs, self._placed(), program.shape, alone=True)
        else:
            batch = Batch.of_shape(self.model, program.shape, beams=self.beams)
            now = time.monotonic()
            for row, run in enumerate(runs):
                self._begin(run, batch, row)
                run.timings.prefill_started = now
        return _Reading(
            graph=graph,
            asked=asked,
            together=together,
            share=len(runs) / len(alike),
            runs=runs,
            batch=batch,
        )

    def _read(self, reading: _Reading) -> float:
        """Reads the next piece of some prompts; returns how long it took, in seconds."""
        program, batch, runs = reading.graph.program, reading.batch, reading.runs
        if not isinstance(program, PrefillProgram):
            raise TypeError(f"{reading.graph.signature} is no prefill graph")
        started = time.monotonic()
        with self._watchdog.watching(reading.graph.signature):
            is_read = program(batch, [run.row for run in runs], reading.start)
        now = time.monotonic()
        self._graphs.record(reading.graph, now - started, steps=1)
        self._covers.miss(reading.together, reading.graph, now - started, share=reading.share)
        reading.start += program.piece
        for run in runs:
            run.padded_prompt_tokens += program.piece
            run.use(reading.asked, reading.graph.signature, now - started)
        if is_read:
            self._reading = None
            self.prefill_padding_tokens += batch.rows * reading.start - sum(
                run.read_tokens for run in runs
            )
            for run in runs:
                run.phase = Phase.DECODE
        return now - started

    # --- Decode ------------------------------------------------------------------------------

    def _decode_chunk(self) -> bool:
        runs = self._in_phase(Phase.DECODE)
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
        batch = place(runs, self._placed(), program.shape)
        started = time.monotonic()
        # First tokens take no time to speak of, and are sent before anything else is done; those
        # with a source take a step like all others.
        fresh = [run for run in runs if run.generated == 0 and not run.has_source]
        advanced = fresh or runs
        steps = 1 if fresh else self._steps(runs, graph)
        with self._watchdog.watching(graph.signature):
            logprobs = program(batch, [run.row for run in advanced], steps)
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
        self._owed_seconds -= now - began
        for run in advanced:
            run.use(asked, graph.signature, now - started)
            self._deliver(run, batch, logprobs, now)

    def _steps(self, runs: Sequence[Run], graph: Graph) -> int:
        """Steps of the next chunk: no longer than a chunk should take, or than anyone needs."""
        furthest = max(run.attended(self.beams) for run in runs)
        room = (graph.signature.length - furthest) // self.beams + 1
        longest = max(run.max_new_tokens - run.generated for run in runs)
        return min(self._chunk_steps(graph), room, longest)

    def _chunk_steps(self, graph: Graph) -> int:
        if graph.step_seconds is None:
            return 1
        return max(1, min(MAX_STEPS, int(CHUNK_SECONDS / graph.step_seconds)))

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
                end = Ended(found[0].reason, found, no_speech=no_speech(run, batch.state))
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
        if run.batch is not None and run.source_key and not run.aligns:
            # Aligning is the last that is done with a source.
            self._encoded.keep(run.source_key, run.batch.caches.give_source(run.row))
        if run.phase is not Phase.QUEUED:
            self._runs.remove(run)
            with self._lock:
                self._queue.end(run)
        run.phase, run.batch = Phase.ENDED, None

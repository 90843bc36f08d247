"""The scheduler of a lane: who has which slot, and which graph runs next.

A run's life here:

1. `submit` queues it, bounded; a full queue refuses at once.
2. At the next chunk boundary a free slot takes it: the lowest, so that few rows suffice. A run that
   would stall there waits in the queue, so that those behind it need not wait for its compilation.
3. A prefill graph reads its prompt and makes its first token.
4. Decode graphs advance all runs together, a few steps a call. Each call takes the ready graph that
   covers most runs, and the cheapest of those; what it leaves is covered by further calls.
5. It leaves at its end, or at the next chunk boundary after it was cancelled.

A run that has outgrown every ready graph stalls, alone: the others go on with the graphs there are.
"""

import itertools
import threading
import time
from collections import deque

import numpy as np

from shaperouter_service.decoding import MAX_STEPS, Lane
from shaperouter_service.errors import GraphFailedError, QueueFullError, ServiceError
from shaperouter_service.graphs import Graph, GraphState, GraphTable, NoCover
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.worker.run import Ended, Failed, FinishReason, NewTokens, Phase, Run

# Device time a chunk should take: as long as a stream does not look choppy and a new request does
# not wait noticeably for its slot, so that small models spend little time between chunks.
CHUNK_SECONDS = 0.03

# Waiting runs that are looked at for one that would not stall: enough to get past a burst of one
# new shape, and little work between two chunks.
LOOK_AHEAD = 32


class LaneScheduler:
    """Runs the requests of one lane.

    `submit` and `cancel` may be called from any thread, `turn` only from the device thread; the
    attributes are for reading.

    Attributes:
        lane: The slots on the device.
        ladders: The shapes its graphs can have.
        beams: Beam width of the lane.
        prefill_padding_tokens: Tokens of padding that prefills computed since the start.
        decode_padding_tokens: Rows decoded for nobody since the start, one for each step.
    """

    def __init__(
        self, lane: Lane, ladders: Ladders, graphs: GraphTable, *, beams: int, queue_limit: int
    ) -> None:
        """Starts with every slot free.

        Args:
            lane: The slots on the device.
            ladders: The shapes its graphs can have.
            graphs: The worker's graphs.
            beams: Beam width of the lane.
            queue_limit: Most runs that wait for a slot.
        """
        self.lane = lane
        self.ladders = ladders
        self.beams = beams
        self.prefill_padding_tokens = 0
        self.decode_padding_tokens = 0
        self._model = lane.model.name
        self._graphs = graphs
        self._queue_limit = queue_limit
        self._lock = threading.Lock()
        self._queue: deque[Run] = deque()
        self._slots: list[Run | None] = [None] * lane.slots

    def submit(self, run: Run) -> None:
        """Queues a run.

        Raises:
            QueueFullError: There is no room.
        """
        with self._lock:
            if len(self._queue) >= self._queue_limit:
                raise QueueFullError(self._model, self._queue_limit)
            self._queue.append(run)

    def cancel(self, run: Run) -> None:
        """Has a run dropped; nothing happens if it has ended."""
        run.cancelled = True

    @property
    def queued(self) -> int:
        """Runs that wait for a slot."""
        return len(self._queue)

    @property
    def active_slots(self) -> int:
        """Slots in use."""
        return sum(run is not None for run in self._slots)

    def turn(self) -> bool:
        """Does what is due between two chunks, one prefill at most, and one chunk.

        Returns:
            Whether the device did anything; if not, only an event can change that.
        """
        self._drop_cancelled()
        self._admit()
        prefilled = self._prefill_first()
        decoded = self._decode_chunk()
        return prefilled or decoded

    def _running(self, phase: Phase) -> list[Run]:
        """The runs of a phase that have a slot, in order of arrival."""
        runs = [run for run in self._slots if run is not None and run.phase is phase]
        return sorted(runs, key=lambda run: run.timings.arrived)

    def _drop_cancelled(self) -> None:
        with self._lock:
            kept = [run for run in self._queue if not run.cancelled]
            if len(kept) < len(self._queue):
                self._queue = deque(kept)
        for run in self._slots:
            if run is not None and run.cancelled:
                self._leave(run)

    def _admit(self) -> None:
        """Gives free slots to the runs that wait, in order, but for those that would stall."""
        free = [slot for slot, occupant in enumerate(self._slots) if occupant is None]
        with self._lock:
            waiting = list(itertools.islice(self._queue, LOOK_AHEAD))
        for run in waiting:
            if not free:
                return
            run.slot = free[0]
            now = time.monotonic()
            missing = self._missing(run)
            # Read once: a compile thread may be changing it.
            failed = missing is not None and missing.state is GraphState.FAILED
            if missing is not None and not failed:
                run.stall(missing, now)
                continue
            with self._lock:
                self._queue.remove(run)
            if missing is not None:
                self._fail(run, GraphFailedError(missing.signature, missing.error))
                continue
            run.resume(now)
            run.timings.admitted = now
            run.phase = Phase.PREFILL
            self._slots[free.pop(0)] = run

    def _missing(self, run: Run) -> Graph | None:
        """Asks for all graphs of a run's life; returns one without which it cannot start."""
        asked = self._prefill_signature(run)
        uncovered = isinstance(self._graphs.cover(asked), NoCover)
        prefill = self._graphs.want(asked, urgent=uncovered)
        if run.max_new_tokens == 1:
            return prefill if uncovered else None
        decode = self._want_decode([run, *self._running(Phase.DECODE)])
        if uncovered:
            return prefill
        if self._best_cover([run])[0] is None:
            return self._unless_failed(decode, run)
        return None

    def _prefill_signature(self, run: Run) -> Signature:
        return self.ladders.prefill(self._model, prompt_tokens=len(run.token_ids), beams=self.beams)

    def _prefill_first(self) -> bool:
        for run in self._running(Phase.PREFILL):
            asked = self._prefill_signature(run)
            graph = self._graphs.cover(asked)
            # Always so: it had a cover when it got its slot, and ready graphs stay ready.
            if not isinstance(graph, NoCover):
                self._prefill(run, asked, graph)
                return True
        return False

    def _prefill(self, run: Run, asked: Signature, graph: Graph) -> None:
        length = graph.signature.length
        token_ids = np.zeros([1, length], np.int32)
        token_ids[0, : len(run.token_ids)] = run.token_ids
        started = time.monotonic()
        run.timings.prefill_started = started
        tokens = graph.program(
            token_ids,
            np.array([len(run.token_ids)], np.int32),
            np.array([run.slot], np.int32),
            np.array([True]),
            *run.options,
        )
        now = time.monotonic()
        graph.record_call(now - started, steps=1)
        run.use(asked, graph.signature, now - started)
        run.padded_prompt_tokens = length
        self.prefill_padding_tokens += length - len(run.token_ids)
        run.timings.first_token = now
        run.phase = Phase.DECODE
        self._deliver(run, [int(tokens[0])], now)

    def _decode_chunk(self) -> bool:
        runs = self._running(Phase.DECODE)
        if not runs:
            return False
        wanted = self._want_decode(runs)
        rest = runs
        while rest:
            graph, covered = self._best_cover(rest)
            if graph is None:
                break
            now = time.monotonic()
            for run in covered:
                run.resume(now)
            self._decode(covered, wanted.signature, graph)
            rest = [run for run in rest if run not in covered]
        for run in rest:
            self._wait(run, self._unless_failed(wanted, run))
        return len(rest) < len(runs)

    def _unless_failed(self, joint: Graph, run: Run) -> Graph:
        """The graph to wait for: that of all runs, or the run's own if that one has failed."""
        return self._want_decode([run]) if joint.state is GraphState.FAILED else joint

    def _want_decode(self, runs: list[Run]) -> Graph:
        """Asks for the tight cover of these runs until their ends, so that none stalls midway."""
        asked = self.ladders.decode(
            self._model,
            rows=max(run.slot for run in runs) + 1,
            length=max(run.final_attended for run in runs),
            beams=self.beams,
        )
        _, covered = self._best_cover(runs)
        return self._graphs.want(asked, urgent=len(covered) < len(runs))

    def _best_cover(self, runs: list[Run]) -> tuple[Graph | None, list[Run]]:
        """The cheapest of the ready graphs that cover most of the runs as they are now."""
        best: Graph | None = None
        best_covered: list[Run] = []
        for graph in self._graphs.ready(self._model, GraphKind.DECODE, self.beams):
            rows, length = graph.signature.rows, graph.signature.length
            covered = [run for run in runs if run.slot < rows and run.attended <= length]
            if len(covered) > len(best_covered):
                best, best_covered = graph, covered
        return best, best_covered

    def _decode(self, runs: list[Run], asked: Signature, graph: Graph) -> None:
        rows, length = graph.signature.rows, graph.signature.length
        active = np.zeros([rows], np.bool_)
        active[[run.slot for run in runs]] = True
        room = min(length - run.attended + 1 for run in runs)
        longest = max(run.max_new_tokens - run.generated for run in runs)
        steps = min(self._chunk_steps(graph), room, longest)
        started = time.monotonic()
        tokens = graph.program(active, np.int32(steps))
        now = time.monotonic()
        # A chunk in which every run ends is left early.
        made = int((tokens >= 0).sum(axis=1).max())
        graph.record_call(now - started, steps=made)
        self.decode_padding_tokens += (rows - len(runs)) * made
        for run in runs:
            run.use(asked, graph.signature, now - started)
            row = tokens[run.slot]
            self._deliver(run, row[row >= 0].tolist(), now)

    def _chunk_steps(self, graph: Graph) -> int:
        if graph.step_seconds is None:
            return 1
        return max(1, min(MAX_STEPS, int(CHUNK_SECONDS / graph.step_seconds)))

    def _deliver(self, run: Run, token_ids: list[int], now: float) -> None:
        run.generated += len(token_ids)
        run.emit(NewTokens(token_ids))
        if token_ids[-1] in run.eos_token_ids:
            self._end(run, FinishReason.EOS, now)
        elif run.generated == run.max_new_tokens:
            self._end(run, FinishReason.LENGTH, now)

    def _end(self, run: Run, reason: FinishReason, now: float) -> None:
        run.timings.ended = now
        self._leave(run)
        run.emit(Ended(reason))

    def _wait(self, run: Run, graph: Graph) -> None:
        if graph.state is GraphState.FAILED:
            self._fail(run, GraphFailedError(graph.signature, graph.error))
        else:
            run.stall(graph, time.monotonic())

    def _fail(self, run: Run, error: ServiceError) -> None:
        self._leave(run)
        run.emit(Failed(error))

    def _leave(self, run: Run) -> None:
        run.resume(time.monotonic())
        if run.phase is not Phase.QUEUED:
            self._slots[run.slot] = None
        run.phase = Phase.ENDED

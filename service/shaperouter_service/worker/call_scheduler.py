"""The scheduler of a model that answers once: which calls are computed together, and when.

The life of a call:

1. `submit` appends it to the queue, or refuses it at once if the queue is full.
2. At the next turn its rows are computed on a ready graph that covers it, together with those of
   other calls, as far as that pays. A call with more rows than the graph takes several turns.
3. Its results are cut out of the graph's outputs, without padding, and sent once all are there.

A call that no ready graph covers stalls until its tight cover is ready, and the calls behind it
go first. Tighter graphs are not requested here: missed savings are recorded, and
`routing.compile_policy` decides what to compile.
"""

import itertools
import threading
import time
from collections.abc import Callable, Sequence

import structlog
import tensorflow as tf

from shaperouter_service.errors import (
    CallFailedError,
    ExhaustedError,
    InvalidRequestError,
    ServiceError,
    Violation,
    shortened,
)
from shaperouter_service.functions import CallProgram, PartsDifferError, cut, elements, join
from shaperouter_service.functions.function import Function
from shaperouter_service.generation.run_events import GraphUse
from shaperouter_service.graphs import Graph, GraphTable
from shaperouter_service.inference.calls import Tensors
from shaperouter_service.models.call_model import CallModel
from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import CallQueueReport
from shaperouter_service.tensors.specs import Axis
from shaperouter_service.traffic_record import TrafficRecorder
from shaperouter_service.worker.call import Begun, Call, CallFailed
from shaperouter_service.worker.call_covers import Batch, CallCovers
from shaperouter_service.worker.call_queue import CallQueue
from shaperouter_service.worker.isolation import NOTICE
from shaperouter_service.worker.padding_checks import PaddingChecks
from shaperouter_service.worker.watchdog import Watchdog

# Device time of a turn, during which lanes wait: as long as a chunk of theirs, so that the device
# is shared equally.
TURN_SECONDS = 0.1

# Waiting calls that may be computed together, and that are searched for one that would not stall.
LOOK_AHEAD = 128

# Characters of a model's own error that are shown to callers.
MAX_ERROR = 500

log = structlog.get_logger(__name__)


class CallScheduler:
    """Computes the calls of one model.

    `submit`, `cancel` and `drain` may be called from any thread, the other methods only from the
    device thread; the attributes are for reading. `compute` is a step of a `turn`; tests replace it
    to hold calls in the queue.

    Attributes:
        model: The model.
        covers: Chooses graphs.
        padding_elements: Rows times sizes computed for nothing since the start.
        padding_differences: Number of padding checks that found a difference.
        checks: The padding checks of a function, if there are any.
    """

    def __init__(
        self,
        model: CallModel,
        graphs: GraphTable,
        *,
        queue_limit: int,
        watchdog: Watchdog,
        recorder: TrafficRecorder,
        on_ladders: Callable[[CallLadders], None],
        check_padding: float = 0.0,
    ) -> None:
        """Starts without calls.

        Args:
            model: The model.
            graphs: The worker's graphs.
            queue_limit: Maximum number of calls that wait.
            watchdog: Watches the calls of graphs.
            recorder: Records the traffic.
            on_ladders: Called when an axis has lost its ladder, before the first call without it.
            check_padding: Share of a function's calls that are repeated while the device is idle.
        """
        self.model = model
        self.covers = CallCovers(model.name, model.ladders, graphs)
        self.padding_elements = 0
        self.padding_differences = 0
        self._on_ladders = on_ladders
        self.checks: PaddingChecks | None = None
        if isinstance(model, Function) and check_padding > 0:
            self.checks = PaddingChecks(model, check_padding, watchdog)
        self._graphs = graphs
        self._watchdog = watchdog
        self._recorder = recorder
        self._lock = threading.Lock()
        self._queue = CallQueue(model.name, queue_limit)
        # Why it accepts no further calls, if it does not.
        self._refusal: ServiceError | None = None

    def submit(self, call: Call) -> None:
        """Queues a call.

        Raises:
            QueueFullError: There is no room.
            ServiceError: It is draining, for the reason of `drain`.
        """
        with self._lock:
            if self._refusal is not None:
                raise self._refusal.with_traceback(None)
            self._queue.put(call)

    def cancel(self, call: Call) -> None:
        """Drops a call, unless it is being computed or has ended."""
        call.cancelled = True

    def drain(self, reason: ServiceError) -> None:
        """Stops accepting calls, and returns the calls that have not begun.

        Args:
            reason: The error of both.
        """
        with self._lock:
            self._refusal = reason

    def report(self) -> CallQueueReport:
        """Describes the load."""
        with self._lock:
            calls = list(self._queue)
        return CallQueueReport(
            model=self.model.name,
            calls=len(calls),
            rows=sum(call.rows_left for call in calls),
            elements=sum(
                call.rows_left * elements(call.sizes) // call.sizes.rows for call in calls
            ),
            padding_elements=self.padding_elements,
            padding_checks=self.checks.checked if self.checks else 0,
            padding_differences=self.padding_differences,
        )

    @property
    def isolates(self) -> bool:
        """Whether a call needs the device to itself."""
        with self._lock:
            return any(call.suspect and call.stalled_on is None for call in self._queue)

    @property
    def waits_for_graph(self) -> bool:
        """Whether a call waits for a graph to be compiled."""
        with self._lock:
            return any(call.waits_for_graph for call in self._queue)

    def turn(self) -> bool:
        """Computes calls for about as long as a lane decodes a chunk.

        Returns:
            Whether the device did anything. If not, only an event can change that.
        """
        started = time.monotonic()
        has_computed = False
        while time.monotonic() < started + TURN_SECONDS:
            self.let_go()
            if not self.compute():
                break
            has_computed = True
        return has_computed

    def let_go(self) -> None:
        """Drops cancelled calls and, if the worker drains, returns the queued ones."""
        now = time.monotonic()
        with self._lock:
            dropped = self._queue.drop(lambda call: call.cancelled)
            refusal = self._refusal
            returned = [] if refusal is None else self._queue.drop(lambda call: not call.taken)
        for call in dropped:
            call.resume(now)
        if refusal is not None:
            for call in returned:
                self._fail(call, refusal)

    def idle(self) -> bool:
        """Checks the padding of one call, if any is due; for times when the device is idle.

        Returns:
            Whether there was one.
        """
        if self.checks is None or not self.checks.are_due:
            return False
        difference = self.checks.check(self.covers.ladders)
        if difference is not None:
            log.error(
                "padding changed an answer; the axis is served exactly from now on",
                model=self.model.name,
                axis=difference.axis.name,
                difference=difference.problem,
            )
            self._lose_ladder(None if difference.axis is self.model.spec.batch else difference.axis)
            # Counted last, so that a reader of the count finds the axis already served exactly.
            self.padding_differences += 1
        return True

    def _lose_ladder(self, axis: Axis | None) -> None:
        """Takes the ladder of an axis; None is the batch."""
        ladders = self.covers.ladders.without(None if axis is None else axis.name)
        self._on_ladders(ladders)
        self.covers.replace(ladders)
        if self.checks:
            self.checks.clear()
        with self._lock:
            for call in self._queue:
                call.start_over()

    def compute(self) -> bool:
        """Computes the first waiting calls that a ready graph covers; returns whether any was."""
        with self._lock:
            waiting = list(itertools.islice(self._queue, LOOK_AHEAD))
        if any(call.suspect for call in waiting):
            waiting.sort(key=lambda call: not call.suspect)
        for lead in waiting:
            batch = self.covers.best(lead, waiting)
            if batch is not None:
                asked, ladders = self.covers.asked(lead, waiting), self.covers.ladders
                # Not again for each part that a graph with too few rows computes.
                if lead.taken % self.covers.max_rows(lead) == 0:
                    self._recorder.call(self.model.name, ladders.by_axis(asked))
                tight = ladders.tight(self.model.name, rows=asked.rows, sizes=asked.axes)
                self._call(batch, tight)
                return True
            missing = self.covers.missing(lead)
            if isinstance(missing, Graph):
                lead.stall(missing, time.monotonic())
            else:
                self._leave([lead])
                self._fail(lead, missing)
        return False

    def _call(self, batch: Batch, asked: Signature) -> None:
        for call in batch.calls:
            call.resume(time.monotonic())
            # Not again for each part that a graph with too few rows computes.
            if call.suspect and not call.taken:
                call.emit(Begun())
                time.sleep(NOTICE)
        self._recorder.record_request(asked)
        began = time.monotonic()
        try:
            outputs = self._run(batch)
        # The model's own operations fail for values that they cannot take.
        except tf.errors.OpError as error:
            self._failed(batch, error)
            return
        ended = time.monotonic()
        seconds = ended - began
        device_seconds = self._graphs.record(batch.graph, seconds, steps=1)
        share = min(1.0, batch.rows / asked.rows) if self.covers.ladders.rows else 1.0
        self.covers.record_missed_savings(asked, batch.graph, seconds, share=share)
        sizes = self.covers.ladders.sizes(batch.graph.signature)
        used = sum(part.rows * elements(part.sizes) // part.sizes.rows for part in batch.parts)
        self.padding_elements += elements(sizes) - used
        if self.checks:
            self.checks.sample(batch.parts, sizes, batch.graph.signature)
        row = 0
        use = GraphUse(
            asked=asked,
            served=batch.graph.signature,
            calls=1,
            device_seconds=device_seconds,
        )
        ends = []
        for call, part in zip(batch.calls, batch.parts, strict=True):
            results = cut(outputs, self.model.spec, part, row)
            row += part.rows
            call.add(results, part.rows, use, began=began, ended=ended)
            if not call.rows_left:
                ends.append(call)
        with self._lock:
            for call, part in zip(batch.calls, batch.parts, strict=True):
                self._queue.computed(call, part.rows)
        self._leave(ends)
        for call in ends:
            try:
                call.emit(call.result(self.model.spec))
            except PartsDifferError as error:
                self._fail(call, CallFailedError(self.model.name, str(error)))

    def _run(self, batch: Batch) -> Tensors:
        program = batch.graph.program
        if not isinstance(program, CallProgram):
            raise TypeError(f"{batch.graph.signature} is not a call graph")
        sizes = self.covers.ladders.sizes(batch.graph.signature)
        inputs = join(batch.parts, self.model.spec, sizes)
        with self._watchdog.watching(batch.graph.signature, batch.calls):
            return program(inputs)

    def _failed(self, batch: Batch, error: tf.errors.OpError) -> None:
        """Fails the only call of a batch; each of several is computed again, alone.

        If memory is lacking, fails all of them: other workers can serve them.
        """
        if exhausted := ExhaustedError.of(error):
            log.warning(
                "calls failed", model=self.model.name, calls=len(batch.calls), error=str(error)
            )
            self._leave(batch.calls)
            for call in batch.calls:
                self._fail(call, exhausted)
            return
        if len(batch.calls) > 1:
            for call in batch.calls:
                call.repeated = True
            return
        self._leave(batch.calls)
        text = shortened(error.message, MAX_ERROR)
        if isinstance(error, tf.errors.InvalidArgumentError):
            description = f"{self.model.name} cannot compute these values: {text}"
            self._fail(
                batch.calls[0],
                InvalidRequestError(Violation(field="inputs", description=description)),
            )
            return
        log.warning("call failed", model=self.model.name, error=text)
        self._fail(batch.calls[0], CallFailedError(self.model.name, text))

    def _leave(self, calls: Sequence[Call]) -> None:
        if calls:
            ended = set(map(id, calls))
            with self._lock:
                self._queue.drop(lambda call: id(call) in ended)

    @staticmethod
    def _fail(call: Call, error: ServiceError) -> None:
        call.resume(time.monotonic())
        call.emit(CallFailed(error))

"""The thread that traces a worker's graphs."""

import heapq
import itertools
import math
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

from shaperouter_service.decoding import enter_thread
from shaperouter_service.graphs.builder import Builder


class Tracer:
    """Traces one graph at a time, for the compile threads.

    Only a graph whose part in the compile cache TensorFlow rejects is traced elsewhere: by its
    compile thread, once more.

    Tracing is Python code, so two traces would contend for the interpreter lock, and each would
    take longer than both in turn. Graphs that wait are traced in the order in which compile threads
    took them.
    """

    def __init__(self) -> None:
        """Starts no thread."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trace")
        self._lock = threading.Lock()
        self._arrivals = itertools.count()
        # A heap of when a compile thread took a graph, its arrival here, its builder, its result.
        self._waiting: list[tuple[float, int, Builder, Future[float]]] = []
        self._is_tracing = False
        self._last_traced = -math.inf

    def start(self) -> None:
        """Starts the thread at the caller's priority, which must be that of serving threads.

        All threads wait while a trace holds the interpreter lock. At a low priority it would hold
        the lock for as long as other processes keep the cores busy.
        """
        self._thread.submit(lambda: None)

    def trace(self, builder: Builder, taken: float) -> float:
        """Traces a program, or loads it, and waits for the end.

        Args:
            builder: What traces it.
            taken: When a compile thread took the graph, in seconds of the monotonic clock.

        Returns:
            When it began, likewise.
        """
        traced: Future[float] = Future()
        with self._lock:
            heapq.heappush(self._waiting, (taken, next(self._arrivals), builder, traced))
        self._thread.submit(self._trace_next)
        return traced.result()

    def was_tracing(self, seconds: float) -> bool:
        """Whether a graph was traced, or its StableHLO was loaded, in these last seconds.

        The time of a call beside that says nothing about its graph, because the call may have
        waited for the interpreter lock.
        """
        return self._is_tracing or time.monotonic() - self._last_traced < seconds

    def _trace_next(self) -> None:
        with self._lock:
            *_, builder, traced = heapq.heappop(self._waiting)
        try:
            traced.set_result(self._trace(builder))
        # Whatever TensorFlow raises is for the compile thread, which waits.
        except BaseException as error:
            traced.set_exception(error)
        finally:
            # An error has this frame, which would keep them.
            del builder, traced

    def _trace(self, builder: Builder) -> float:
        enter_thread()
        started = time.monotonic()
        self._is_tracing = True
        try:
            builder.trace()
        finally:
            self._last_traced = time.monotonic()
            self._is_tracing = False
        return started

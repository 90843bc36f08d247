"""Simulated machines: a worker's own, and one whose cores workers, router and caller share."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Semaphore, Thread

from .clock import Clock
from .costs import MeasuredCosts

# Work in seconds that is none, but for rounding.
NOTHING = 1e-12


class Host:
    """The machine of one worker, which nothing slows down."""

    def __init__(self, clock: Clock, costs: MeasuredCosts) -> None:
        """Starts idle."""
        self._clock, self._costs = clock, costs

    def way_seconds(self, share: float) -> float:
        """The time of a request besides queue and device.

        Args:
            share: Share of requests that take less, from 0 to 1.
        """
        return self._costs.way_seconds

    def run(self, turn: Callable[[], None]) -> None:
        """Runs a turn of a worker, which may call `compute`."""
        turn()

    def compute(self, seconds: float) -> float:
        """Lets the time of a call pass within a turn; returns how long it took.

        Args:
            seconds: How long it takes on a machine that nothing else uses.
        """
        self._clock.elapse(seconds)
        return seconds


@dataclass(eq=False)
class _Call:
    """A call, and the rest of its work in seconds on an unused machine."""

    strand: "_Strand"
    left: float


class SharedHost(Host):
    """A machine that workers share. A call gets slower as soon as another one begins beside it.

    A call may take 0.1 s, in which others begin and end. So the turn of a worker, which is the
    product's code and knows nothing of simulated time, is suspended during its calls.
    """

    def __init__(self, clock: Clock, costs: MeasuredCosts, background: float) -> None:
        """Starts idle.

        Args:
            clock: The simulated time.
            costs: Measured costs, with those of contention.
            background: Cores that processes other than workers use.
        """
        super().__init__(clock, costs)
        self._contention, self._background = costs.contention, background
        self._calls: list[_Call] = []
        self._running: _Strand | None = None
        self._since, self._changes = 0.0, 0

    @property
    def load(self) -> float:
        """The present load; see `Contention`."""
        return len(self._calls) + self._background

    def way_seconds(self, share: float) -> float:
        """On cores that are in use, each process on a request's way waits for its turn."""
        return self._contention.way(self.load, share)

    def run(self, turn: Callable[[], None]) -> None:
        """Runs a turn until it ends or computes."""
        self._resume(_Strand(turn))

    def compute(self, seconds: float) -> float:
        """Suspends the turn that computes; see `Host.compute`."""
        assert self._running
        began = self._clock()
        self._progress()
        self._calls.append(_Call(self._running, seconds))
        self._expect()
        self._running.pause()
        return self._clock() - began

    def _progress(self) -> None:
        """Notes what has been computed since the last change of the load."""
        now = self._clock()
        done = (now - self._since) / self._contention.slowdown(self.load)
        for call in self._calls:
            call.left -= done
        self._since = now

    def _expect(self) -> None:
        """Expects the end of the next call to end, unless the load changes before."""
        self._changes += 1
        if self._calls:
            change = self._changes
            left = max(0.0, min(call.left for call in self._calls))
            seconds = left * self._contention.slowdown(self.load)
            self._clock.after(seconds, lambda: self._end(change))

    def _end(self, change: int) -> None:
        if change != self._changes:
            return
        self._progress()
        ended = [call for call in self._calls if call.left <= NOTHING]
        self._calls = [call for call in self._calls if call not in ended]
        self._expect()
        for call in ended:
            self._resume(call.strand)

    def _resume(self, strand: "_Strand") -> None:
        self._running = strand
        strand.resume()
        self._running = None


class _Strand:
    """Code that can be suspended: a thread that never runs beside the one that resumes it."""

    def __init__(self, code: Callable[[], None]) -> None:
        self._code = code
        self._error: BaseException | None = None
        self._go, self._back = Semaphore(0), Semaphore(0)
        # Calls that are under way when a simulation ends are never resumed.
        Thread(target=self._run, daemon=True).start()

    def resume(self) -> None:
        """Runs the code until it pauses or ends."""
        self._go.release()
        self._back.acquire()
        if self._error:
            raise self._error

    def pause(self) -> None:
        """Suspends the code, which calls this."""
        self._back.release()
        self._go.acquire()

    def _run(self) -> None:
        self._go.acquire()
        try:
            self._code()
        # It is raised where the code is resumed.
        except BaseException as error:
            self._error = error
        self._back.release()

"""A thread that works for many clients in turn, with a bounded and fair queue.

Start-time fair queueing (Goyal, Vin and Cheng, 1996), as in the queues of workers: the client that
has been served least comes next, so a heavy client delays only itself.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from shaperouter_service.errors import TextQueueFullError
from shaperouter_service.system.process import lower_priority

T = TypeVar("T")


@dataclass(eq=False, kw_only=True)
class _Job:
    """A job in the queue.

    Attributes:
        size: Size of the work, in characters of text or in blocks of sound.
        since: The virtual time of its arrival; it starts no earlier.
        turn: Done when the job may start; cancelled when its caller has left.
    """

    size: int
    since: int
    turn: "asyncio.Future[None]" = field(default_factory=asyncio.Future)


class FairThread:
    """One thread and its queue. Only the event loop may use it.

    Work whose caller is cancelled while it waits never starts. A running thread cannot be
    interrupted: the next job starts when the abandoned one has ended.
    """

    def __init__(self, name: str, *, limit: int | None, low_priority: bool) -> None:
        """Creates the thread, idle.

        Args:
            name: Name of the thread.
            limit: Maximum size of all waiting jobs; None means no limit. A single client may use
                half of it, two a third each, and so on, so there is always room for another client.
            low_priority: Whether the thread runs at a lower priority than serving threads.
        """
        self._limit = limit
        self._thread = ThreadPoolExecutor(
            1, thread_name_prefix=name, initializer=lower_priority if low_priority else None
        )
        self._running = False
        # Waiting jobs by client, each list in order of arrival and never empty.
        self._waiting: dict[str, deque[_Job]] = {}
        # The virtual start time of the newest job, and the virtual end time of each client's last
        # one.
        self._now = 0
        self._ends: dict[str, int] = {}

    async def run(self, client: str, size: int, work: Callable[[], T]) -> T:
        """Calls `work` in the thread when it is the client's turn, and returns its result.

        Args:
            client: Name of the client.
            size: Size of the work, in characters of text or in blocks of sound.
            work: What the thread calls.

        Raises:
            TextQueueFullError: Too much work is already waiting.
        """
        await self._turn(client, size)
        try:
            running = asyncio.get_running_loop().run_in_executor(self._thread, work)
        except BaseException:  # The system cannot start a thread.
            self._release()
            raise
        running.add_done_callback(lambda _: self._release())
        # The thread continues when the caller is cancelled, and keeps its turn until it has
        # finished.
        return await asyncio.shield(running)

    async def _turn(self, client: str, size: int) -> None:
        self._check_room(client, size)
        job = _Job(size=size, since=self._now)
        self._waiting.setdefault(client, deque()).append(job)
        self._start_next()
        try:
            await job.turn
        except asyncio.CancelledError:
            if job.turn.cancelled():
                self._remove(client, job)
            else:
                # The turn and the cancellation came at the same time.
                self._release()
            raise

    def _check_room(self, client: str, size: int) -> None:
        if self._limit is None or (not self._running and not self._waiting):
            return
        waiting = {name: sum(job.size for job in jobs) for name, jobs in self._waiting.items()}
        if waiting and sum(waiting.values()) + size > self._limit:
            raise TextQueueFullError(self._limit)
        share = self._limit // (len(waiting.keys() | {client}) + 1)
        if client in waiting and waiting[client] + size > share:
            raise TextQueueFullError(share, of_client=True)

    def _start_next(self) -> None:
        if self._running:
            return
        # Callers that were just cancelled remove their jobs themselves.
        heads = {
            client: job
            for client, jobs in self._waiting.items()
            if (job := next((job for job in jobs if not job.turn.done()), None))
        }
        if not heads:
            # Idle: everything has been served, so no client is behind another.
            self._ends.clear()
            return
        # Among equal clients, the one that arrived first goes first.
        client = min(heads, key=lambda name: self._start_of(name, heads[name]))
        job = heads[client]
        self._now = self._start_of(client, job)
        self._ends[client] = self._now + job.size
        self._remove(client, job)
        # A client that has been idle is treated like a new one.
        self._ends = {
            name: end
            for name, end in self._ends.items()
            if end > self._now or name in self._waiting
        }
        self._running = True
        job.turn.set_result(None)

    def _start_of(self, client: str, job: _Job) -> int:
        return max(job.since, self._ends.get(client, 0))

    def _remove(self, client: str, job: _Job) -> None:
        self._waiting[client].remove(job)
        if not self._waiting[client]:
            del self._waiting[client]

    def _release(self) -> None:
        self._running = False
        self._start_next()

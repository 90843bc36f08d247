"""The state of the whole service, for people who watch it."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

from shaperouter_service.auth import CallLimit
from shaperouter_service.fleet import Fleet
from shaperouter_service.fleet.losses import WorkerLoss
from shaperouter_service.routing.snapshots import Snapshot
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.request_record import RequestRecord, RequestRecorder
from shaperouter_service.serving.request_summary import RequestSummary
from shaperouter_service.telemetry.refusals import RefusalMetrics
from shaperouter_service.telemetry.requests import RequestCounts

# Minimum seconds between two looks of one watcher.
INTERVAL = 0.5
# Maximum number of watchers, and maximum looks per second of all together: with many watchers each
# looks more seldom.
MAX_WATCHERS, MAX_LOOKS_PER_SECOND = 64, 20.0


class Overview:
    """Shows workers, requests and counts. Only the event loop may use it."""

    def __init__(self, fleet: Fleet, recorder: RequestRecorder, refusals: RefusalMetrics) -> None:
        """Takes what is shown.

        Args:
            fleet: The workers.
            recorder: Has the last requests, and counts all.
            refusals: Counts refused calls.
        """
        self._fleet = fleet
        self._recorder = recorder
        self._refusals = refusals
        self._watchers = CallLimit(MAX_WATCHERS)

    async def looks(self, call: Call) -> AsyncGenerator[None, None]:
        """Yields at once and at intervals, until the service stops.

        Raises:
            TooManyCallsError: There are too many watchers.
        """
        with self._watchers.admitted(call.client):
            while not self._fleet.changes_ended:
                yield
                pause = self._watchers.in_progress / MAX_LOOKS_PER_SECOND
                await asyncio.sleep(max(INTERVAL, pause))

    def snapshots(self) -> Sequence[Snapshot]:
        """The snapshots of the workers that get requests."""
        return self._fleet.catalog.snapshots()

    def losses(self) -> Sequence[WorkerLoss]:
        """The last losses of workers, oldest first."""
        return self._fleet.losses.all()

    def counts(self) -> RequestCounts:
        """Counts of requests and tokens."""
        return self._recorder.metrics.counts()

    def refusals(self) -> Mapping[str, int]:
        """Refused calls by reason."""
        return self._refusals.counts()

    def requests(self) -> Iterator[RequestRecord]:
        """The last requests of all clients, oldest first."""
        return self._recorder.history.records()

    def request(self, request_id: str, call: Call) -> RequestSummary | None:
        """One of the last requests; None if it is not kept, or the caller may not see it."""
        found = self._recorder.history.find(request_id)
        return found if found and may_see(call, found.client) else None


def may_see(call: Call, client: str) -> bool:
    """Whether a caller may see a client's requests: its own, or all if it is an operator."""
    return call.quota is None or call.quota.client.operator or call.client == client

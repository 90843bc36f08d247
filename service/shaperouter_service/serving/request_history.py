"""The last requests of a router, running or ended."""

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shaperouter_service.serving.request_summary import RequestSummary

if TYPE_CHECKING:
    from shaperouter_service.serving.request_record import RequestRecord

# Requests that are kept.
MAX_REQUESTS = 100


class RequestHistory:
    """The last requests in the order of their arrival. Only the event loop may use it.

    It keeps the records that requests have anyway, so a request costs nothing more until somebody
    asks for a summary.
    """

    def __init__(self) -> None:
        """Starts without requests."""
        self._records: deque[RequestRecord] = deque(maxlen=MAX_REQUESTS)

    def add(self, record: "RequestRecord") -> None:
        """Adds a request that has arrived; the oldest one is forgotten if there are too many."""
        self._records.append(record)

    def records(self) -> "Iterator[RequestRecord]":
        """The kept records, oldest first."""
        return iter(self._records)

    def find(self, request_id: str) -> RequestSummary | None:
        """The newest request with an id; None if it is not kept."""
        found = (each for each in reversed(self._records) if each.request_id == request_id)
        return next((each.summary() for each in found), None)

"""Log lines of refused calls, limited so that a flood of calls cannot flood the log."""

import asyncio
import logging
import time
from collections import Counter
from typing import Any

import structlog

from shaperouter_service.errors import Code, ServiceError, shortened
from shaperouter_service.serving.call import Call
from shaperouter_service.telemetry.refusals import RefusalMetrics

log = structlog.get_logger("shaperouter.request")

# Levels of the lines that operators should look at; others are informational.
LEVELS = {
    Code.INTERNAL: logging.ERROR,
    Code.UNAVAILABLE: logging.WARNING,
    Code.RESOURCE_EXHAUSTED: logging.WARNING,
}

# Maximum lines of refused calls: BURST at once, and LINES_PER_SECOND on average, which is about
# 200 MB a day. Anybody can have any number of calls refused.
LINES_PER_SECOND, BURST = 5.0, 100

# Seconds between two lines about how many were left out.
SUMMARY_INTERVAL = 10.0

# Characters of an error in the log: some quote what the caller sent.
MAX_ERROR_CHARACTERS = 500

# Characters of a client's name in the log: without tokens, callers choose it.
MAX_CLIENT_CHARACTERS = 100


class RefusalLog:
    """Logs and counts the refused calls of one router. Only the event loop may use it."""

    def __init__(self, metrics: RefusalMetrics) -> None:
        """Starts without refused calls; `metrics` counts them."""
        self._metrics = metrics
        self._lines = float(BURST)
        self._at = time.monotonic()
        self._left_out: Counter[str] = Counter()
        self._summary: asyncio.TimerHandle | None = None

    def refused(self, error: ServiceError, call: Call) -> None:
        """Counts a call that ended with an error, and logs it unless that was already done."""
        self._metrics.refused(error.reason)
        if call.logged:
            return
        fields = {
            "request_id": call.request_id,
            "method": call.method,
            "code": error.code.name,
            "reason": error.reason,
            "error": shortened(str(error), MAX_ERROR_CHARACTERS),
            "client": shortened(call.client, MAX_CLIENT_CHARACTERS),
            "peer": call.peer,
        }
        self.write(error.code, "call refused", fields)

    def write(self, code: Code, event: str, fields: dict[str, Any]) -> None:
        """Writes a line about a refused call, unless there are too many.

        Args:
            code: How the call ended.
            event: Event of the line.
            fields: Fields of the line.
        """
        now = time.monotonic()
        self._lines = min(BURST, self._lines + (now - self._at) * LINES_PER_SECOND)
        self._at = now
        if self._lines >= 1:
            self._lines -= 1
            log.log(LEVELS.get(code, logging.INFO), event, **fields)
            return
        self._left_out[code.name] += 1
        if self._summary is None:
            loop = asyncio.get_running_loop()
            self._summary = loop.call_later(SUMMARY_INTERVAL, self.summarize)

    def summarize(self) -> None:
        """Logs how many lines were left out since the last summary."""
        if self._summary is not None:
            self._summary.cancel()
            self._summary = None
        if self._left_out:
            log.warning(
                "refused calls not logged",
                count=self._left_out.total(),
                by_code=dict(self._left_out),
            )
            self._left_out.clear()

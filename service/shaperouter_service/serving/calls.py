"""Ids, deadlines and ends, which all calls that run something share."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any

from grpc import aio

from shaperouter_service.errors import Code, ServiceError
from shaperouter_service.telemetry.requests import RequestRecord

# A deadline more than ten years away, in seconds, counts as none. Callers give centuries if they
# mean no deadline, and gRPC takes a deadline after the year 2262 for one in the past.
NO_DEADLINE = 10 * 365 * 24 * 3600.0


def deadline_of(context: aio.ServicerContext[Any, Any]) -> float | None:
    """The deadline of a call, on the monotonic clock in seconds; None if it has none."""
    remaining = context.time_remaining()
    if remaining is None or remaining > NO_DEADLINE:
        return None
    return time.monotonic() + remaining


@contextlib.contextmanager
def recorded_end(record: RequestRecord, deadline: float | None) -> Iterator[None]:
    """Records how a request ended if it failed."""
    try:
        yield
    except ServiceError as error:
        record.code, record.error = error.code, str(error)
        raise
    except (asyncio.CancelledError, GeneratorExit):
        # gRPC cancels this task both when the caller leaves and when the deadline passes.
        passed = deadline is not None and time.monotonic() >= deadline
        record.code = Code.DEADLINE_EXCEEDED if passed else Code.CANCELLED
        raise
    # Every other exception is recorded in the log and the metrics, and raised again.
    except Exception as error:
        record.code, record.error = Code.INTERNAL, repr(error)
        raise

"""What all calls have in common that run something: ids, deadlines and ends."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any

import grpc
from grpc import aio

from shaperouter_service.errors import ServiceError
from shaperouter_service.telemetry.requests import RequestRecord

REQUEST_ID_KEY = "x-request-id"


def deadline_of(context: aio.ServicerContext[Any, Any]) -> float | None:
    """When a call must have ended, on the monotonic clock in seconds; None if it may take long."""
    remaining = context.time_remaining()
    return None if remaining is None else time.monotonic() + remaining


@contextlib.contextmanager
def recorded_end(record: RequestRecord, deadline: float | None) -> Iterator[None]:
    """Tells the record how a request ended that did not end well."""
    try:
        yield
    except ServiceError as error:
        record.code, record.error = error.code, str(error)
        raise
    except (asyncio.CancelledError, GeneratorExit):
        # The caller has gone, or its deadline has passed: gRPC cancels us for either.
        passed = deadline is not None and time.monotonic() >= deadline
        record.code = grpc.StatusCode.DEADLINE_EXCEEDED if passed else grpc.StatusCode.CANCELLED
        raise
    # Nothing is swallowed: what nobody foresaw is to be in the log and the metrics, too.
    except Exception as error:
        record.code, record.error = grpc.StatusCode.INTERNAL, repr(error)
        raise

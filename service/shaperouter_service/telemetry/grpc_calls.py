"""Metrics of all gRPC calls, with the metric names of other servers' interceptors.

Refused calls are included. The metrics of requests are separate, because they have models as
labels.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from grpc import aio
from prometheus_client import CollectorRegistry, Counter, Histogram

from shaperouter_service.rpc.handlers import Context, Handler, surrounded
from shaperouter_service.telemetry.series import remember_series

# Buckets in seconds, from a list of models to a long transcription.
_BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

_LABELS = ["grpc_type", "grpc_service", "grpc_method"]


class CallMetrics(aio.ServerInterceptor):
    """Counts and times the calls of given services, so that callers cannot add labels."""

    def __init__(self, registry: CollectorRegistry, services: Iterable[ServiceDescriptor]) -> None:
        """Registers the metrics.

        Args:
            registry: Registry of the metrics.
            services: Services whose calls are counted.
        """
        self._started = Counter(
            "grpc_server_started", "Calls that have started.", _LABELS, registry=registry
        )
        self._handled = Counter(
            "grpc_server_handled",
            "Calls that have ended, by gRPC status code.",
            [*_LABELS, "grpc_code"],
            registry=registry,
        )
        self._seconds = Histogram(
            "grpc_server_handling_seconds",
            "Time from the start of a call to its end, in seconds.",
            _LABELS,
            buckets=_BOUNDS,
            registry=registry,
        )
        remember_series([self._started, self._handled, self._seconds])
        self._labels = {
            f"/{service.full_name}/{method.name}": (_type(method), service.full_name, method.name)
            for service in services
            for method in service.methods
        }
        for labels in self._labels.values():
            self._started.labels(*labels)
            self._seconds.labels(*labels)
            for code in grpc.StatusCode:
                self._handled.labels(*labels, code.name)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Wraps a method's handler."""
        handler = await continuation(handler_call_details)
        labels = self._labels.get(handler_call_details.method)
        if labels is None:
            return handler
        return surrounded(handler, lambda context: self._counted(context, labels))

    @contextlib.asynccontextmanager
    async def _counted(self, context: Context, labels: tuple[str, str, str]) -> AsyncIterator[None]:
        started = time.monotonic()
        self._started.labels(*labels).inc()
        code = grpc.StatusCode.OK
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            # The caller has gone, or its deadline has passed.
            code = grpc.StatusCode.CANCELLED
            raise
        except BaseException:
            code = _CODES.get(context.code(), grpc.StatusCode.UNKNOWN)
            raise
        finally:
            self._handled.labels(*labels, code.name).inc()
            self._seconds.labels(*labels).observe(time.monotonic() - started)


# gRPC's asyncio API returns a code either as it was set or as a number.
_CODES: dict[Any, grpc.StatusCode] = {
    key: code for code in grpc.StatusCode for key in (code, code.value[0])
}


def _type(method: MethodDescriptor) -> str:
    request = "client_stream" if method.client_streaming else "unary"
    if method.server_streaming:
        return "bidi_stream" if method.client_streaming else "server_stream"
    return request

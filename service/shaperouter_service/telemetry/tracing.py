"""Traces of requests with OpenTelemetry; does nothing unless tracing is on.

The metadata `traceparent` of a call contains its caller's span (W3C Trace Context). The router's
span of the request is its child, and the worker's span of each run is a child of the router's. So
one trace leads from the application to the device. The spans and their attributes:

======================= ====================================================================
span                    attributes and events
======================= ====================================================================
a method's full name    a request: model, tokens, client, how it ended; with the events `route`
                        (each decision), `lost` (a worker), `stall` and `first token`
run                     a run on a worker, from its arrival to its end; with an event `chunk` for
                        each chunk of tokens
queue, stall, prefill,  parts of a run
decode
======================= ====================================================================

OpenTelemetry's own variables set where traces go and which are kept
(`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, …).
"""

import os
import time
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from shaperouter_service import __version__
from shaperouter_service.errors import StartupError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

TracingChoice = Literal["off", "otlp"]

# Attributes of spans and events, by the names of OpenTelemetry's conventions or our own.
Attributes: TypeAlias = Mapping[str, str | int | float | bool | Sequence[str]]
NONE: Attributes = {}

# Time limit in seconds to send the last spans when a process ends.
FLUSH = 2.0

_provider: "TracerProvider | None" = None
# Each call is a task with its own context: its method, and the OpenTelemetry context of its caller.
_incoming: ContextVar[tuple[str, Any]] = ContextVar("incoming", default=("", None))
# The span of the current request or run.
_current: ContextVar["Span | None"] = ContextVar("span", default=None)


def configure_tracing(choice: TracingChoice, *, role: str) -> None:
    """Starts tracing, unless it is off.

    Raises:
        StartupError: The packages for tracing are not installed.
    """
    if choice == "off":
        return
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise StartupError(
            f"tracing: {error.name} is not installed; otlp needs shaperouter-service[tracing]"
        ) from error
    trace_to(BatchSpanProcessor(OTLPSpanExporter()), role=role)


def trace_to(processor: "SpanProcessor", *, role: str) -> None:
    """Starts tracing to a span processor."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    global _provider  # noqa: PLW0603 (tracing is global to the process)
    attributes = {"service.version": __version__}
    if "OTEL_SERVICE_NAME" not in os.environ:
        attributes["service.name"] = f"shaperouter-{role}"
    # `end_tracing` sends the last spans, while the event loop still runs.
    _provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    _provider.add_span_processor(processor)


def end_tracing() -> None:
    """Sends the remaining spans and stops tracing."""
    global _provider  # noqa: PLW0603 (tracing is global to the process)
    if _provider is not None:
        _provider.force_flush(int(FLUSH * 1000))
        _provider = None


def receive(method: str, headers: Iterable[tuple[str, str | bytes]]) -> None:
    """Remembers for the current task which method is called, and the caller's span.

    Args:
        method: Name of the method, which names the span.
        headers: Headers or metadata of the call, with keys in lower case.
    """
    if _provider is None:
        return
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {key: value for key, value in headers if isinstance(value, str)}
    # Based on an empty context, because spans of this process are no parents of a call.
    _incoming.set((method, TraceContextTextMapPropagator().extract(carrier, Context())))


class Span:
    """The span of a request or a run; does nothing if it is not traced."""

    def __init__(self, span: Any = None) -> None:
        """Wraps OpenTelemetry's span, if there is one."""
        self._span = span if span is not None and span.is_recording() else None

    def __bool__(self) -> bool:
        """Whether the span is recorded."""
        return self._span is not None

    def set(self, attributes: Attributes) -> None:
        """Sets attributes of the span."""
        if self._span is not None:
            self._span.set_attributes(attributes)

    def event(self, name: str, attributes: Attributes = NONE) -> None:
        """Adds an event at the current time."""
        if self._span is not None:
            self._span.add_event(name, attributes)

    def part(self, name: str, start: float, end: float, attributes: Attributes = NONE) -> None:
        """Adds a child span between two times of the monotonic clock."""
        if self._span is None or _provider is None:
            return
        tracer = _provider.get_tracer(__name__)
        started = _wall_clock(start)
        part = tracer.start_span(
            name, context=self.context(), start_time=started, attributes=attributes
        )
        # The clocks are compared once, so that the duration is exact.
        part.end(started + int((end - start) * 1e9))

    def end(self, *, error: str = "") -> None:
        """Ends the span, with an error if one is given."""
        if self._span is None:
            return
        if error:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()

    def context(self) -> Any:
        """The OpenTelemetry context for children of the span."""
        from opentelemetry.context import Context
        from opentelemetry.trace import set_span_in_context

        # Based on an empty context, so that no other span becomes a parent.
        return Context() if self._span is None else set_span_in_context(self._span, Context())

    @property
    def ids(self) -> Mapping[str, str]:
        """Ids for log lines and exemplars that refer to the span; empty if it is not recorded."""
        if self._span is None:
            return {}
        context = self._span.get_span_context()
        return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}

    @property
    def exemplar(self) -> dict[str, str] | None:
        """Labels of an exemplar that refers to the span; None if it is not recorded."""
        return dict(self.ids) or None


def start_span(
    name: str = "", attributes: Attributes = NONE, *, start: float | None = None
) -> Span:
    """Starts the span of the current call's request or run, which becomes the current span.

    Args:
        name: Name of the span; if empty, the call's method.
        attributes: Attributes of the span.
        start: Start on the monotonic clock; None means now.
    """
    if _provider is None:
        return Span()
    from opentelemetry.trace import SpanKind

    method, parent = _incoming.get()
    span = Span(
        _provider.get_tracer(__name__).start_span(
            name or method,
            context=parent,
            kind=SpanKind.SERVER,
            start_time=None if start is None else _wall_clock(start),
            attributes=attributes,
        )
    )
    _current.set(span)
    return span


def outgoing_context() -> dict[str, str]:
    """The current span for a worker, as headers of a call; empty without one."""
    carrier: dict[str, str] = {}
    span = _current.get()
    if _provider is not None and span:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(carrier, span.context())
    return carrier


def add_ids(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Adds the ids of the current span to a log line; a processor of structlog."""
    if span := _current.get():
        event.update(span.ids)
    return event


def _wall_clock(monotonic: float) -> int:
    """Nanoseconds of the wall clock at a time of the monotonic one."""
    return time.time_ns() - int((time.monotonic() - monotonic) * 1e9)

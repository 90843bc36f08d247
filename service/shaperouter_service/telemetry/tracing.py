"""Traces of requests, with OpenTelemetry, if they are asked for; else everything here is idle.

A call brings its caller's span in the metadata `traceparent` (W3C Trace Context), a router's span
of the request is its child, and the worker's span of each run that of the router's: one trace, from
the application to the device. The spans and their attributes:

======================= ====================================================================
span                    what it tells
======================= ====================================================================
a method's full name    a request: model, tokens, client, how it ended; with the events `route`
                        (each decision), `stall` and `first token`
run                     it on a worker, from its arrival there to its end; with an event `chunk` for
                        each time that it got tokens
queue, stall, prefill,  parts of a run
decode
======================= ====================================================================

Where traces go, and which are kept, say OpenTelemetry's own variables
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

# Seconds for the last spans to leave when a process ends.
FLUSH = 2.0

_provider: "TracerProvider | None" = None
# Each call is a task with a context of its own. What a call brings: its method, and OpenTelemetry's
# context of its caller.
_incoming: ContextVar[tuple[str, Any]] = ContextVar("incoming", default=("", None))
# The span of the request or run that this is part of.
_current: ContextVar["Span | None"] = ContextVar("span", default=None)


def configure_tracing(choice: TracingChoice, *, role: str) -> None:
    """Has requests traced from now on, if they are to be.

    Raises:
        StartupError: What it takes is not installed.
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
    """Has spans go to a processor."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    global _provider  # noqa: PLW0603 (tracing is of the process, as logging is)
    attributes = {"service.version": __version__}
    if "OTEL_SERVICE_NAME" not in os.environ:
        attributes["service.name"] = f"shaperouter-{role}"
    # At the end of the process spans are sent by `end_tracing`, as long as there is a loop.
    _provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    _provider.add_span_processor(processor)


def end_tracing() -> None:
    """Sends what was not sent yet, and traces no more."""
    global _provider  # noqa: PLW0603
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
    # In an empty context: what this process does by itself is no parent of a call.
    _incoming.set((method, TraceContextTextMapPropagator().extract(carrier, Context())))


class Span:
    """What happens to a request or a run; does nothing where nothing is traced."""

    def __init__(self, span: Any = None) -> None:
        """Takes OpenTelemetry's span, if there is one."""
        self._span = span if span is not None and span.is_recording() else None

    def __bool__(self) -> bool:
        """Whether anything is kept of it."""
        return self._span is not None

    def set(self, attributes: Attributes) -> None:
        """Says something of all of it."""
        if self._span is not None:
            self._span.set_attributes(attributes)

    def event(self, name: str, attributes: Attributes = NONE) -> None:
        """Something happens now."""
        if self._span is not None:
            self._span.add_event(name, attributes)

    def part(self, name: str, start: float, end: float, attributes: Attributes = NONE) -> None:
        """Something has taken from one time on the monotonic clock to another."""
        if self._span is None or _provider is None:
            return
        tracer = _provider.get_tracer(__name__)
        part = tracer.start_span(
            name,
            context=self.context(),
            start_time=_wall_clock(start),
            attributes=attributes,
        )
        part.end(_wall_clock(end))

    def end(self, *, error: str = "") -> None:
        """It has ended: well, or with an error."""
        if self._span is None:
            return
        if error:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()

    def context(self) -> Any:
        """OpenTelemetry's context of what is a part of it."""
        from opentelemetry.context import Context
        from opentelemetry.trace import set_span_in_context

        # In an empty one: nothing else is a parent of it.
        return Context() if self._span is None else set_span_in_context(self._span, Context())

    @property
    def ids(self) -> Mapping[str, str]:
        """By which a log's line or an exemplar points to it; empty where nothing is kept."""
        if self._span is None:
            return {}
        context = self._span.get_span_context()
        return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}

    @property
    def exemplar(self) -> dict[str, str] | None:
        """What a histogram's observation points to it by; None where nothing is kept."""
        return dict(self.ids) or None


def start_span(
    name: str = "", attributes: Attributes = NONE, *, start: float | None = None
) -> Span:
    """Starts the span of what the current call asks for, which is then the current one.

    Args:
        name: Of the span; the call's method if it is empty.
        attributes: Of the span.
        start: When it began, on the monotonic clock; now without it.
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


def outgoing_metadata() -> tuple[tuple[str, str], ...] | None:
    """What a call to a worker brings of the current span."""
    span = _current.get()
    if _provider is None or not span:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, span.context())
    return tuple(carrier.items())


def add_ids(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Has a log's line point to the current span; a processor of structlog."""
    if span := _current.get():
        event.update(span.ids)
    return event


def _wall_clock(monotonic: float) -> int:
    """Nanoseconds of the wall clock at a time of the monotonic one."""
    return time.time_ns() - int((time.monotonic() - monotonic) * 1e9)

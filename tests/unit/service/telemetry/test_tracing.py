"""Traces: spans of requests and runs, and their ids in logs and exemplars."""

from __future__ import annotations

import builtins
import contextvars
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest

from harness.calls import a_call, recorder_of
from harness.fake_worker import FakeWorker
from harness.logs import configured_logs
from harness.router import Play, Router
from harness.waiting import TIMEOUT
from shaperouter.v1 import generation_pb2
from shaperouter_service.errors import StartupError
from shaperouter_service.telemetry import tracing
from shaperouter_service.telemetry.logs import LogSettings

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


class Spans:
    """What was traced."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def spans() -> Iterator[Spans]:
    """Traces everything to memory."""
    exporter = InMemorySpanExporter()
    tracing.trace_to(SimpleSpanProcessor(exporter), role="router")
    yield Spans(exporter)
    tracing.end_tracing()


async def generate(router: Router, traceparent: str | None = TRACEPARENT, **fields: Any) -> Any:
    request = generation_pb2.GenerateRequest(
        **({"token_ids": generation_pb2.TokenIds(ids=[1, 2])} | fields)
    )
    metadata = () if traceparent is None else (("traceparent", traceparent),)
    return await router.generation.Generate(request, metadata=metadata, timeout=TIMEOUT)


GENERATE = "shaperouter.v1.GenerationService/Generate"


def test_spans_of_caller_request_and_run_form_one_trace(play: Play, spans: Spans) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script.insert(0, worker.stall())
        response = await generate(router)
        (span,) = spans.named(GENERATE)
        assert f"{span.context.trace_id:032x}" == TRACE
        assert span.parent is not None
        assert f"{span.parent.span_id:016x}" == PARENT
        assert worker.metadata[0]["traceparent"] == f"00-{TRACE}-{span.context.span_id:016x}-01"
        assert [event.name for event in span.events] == ["route", "stall", "first_token"]
        route = span.events[0].attributes
        assert route is not None
        assert route["shaperouter.worker"] == "worker-0"
        assert route["shaperouter.graphs"] == ("tiny prefill 1x64", "tiny decode 1x64")
        assert span.attributes is not None
        expected = {
            "gen_ai.request.model": "tiny",
            "gen_ai.usage.input_tokens": 2,
            "gen_ai.usage.output_tokens": 3,
            "rpc.grpc.status_code": 0,
            "shaperouter.request_id": response.completion.request_id,
        }
        assert expected.items() <= dict(span.attributes).items()

    play(scenario)


@pytest.mark.parametrize(
    "traceparent", [None, "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"]
)
def test_a_request_without_a_callers_span_starts_a_trace(
    play: Play, spans: Spans, traceparent: str | None
) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        await generate(router, traceparent)
        await generate(router, traceparent)
        first, second = spans.named(GENERATE)
        assert first.parent is None
        assert first.context.trace_id != second.context.trace_id

    play(scenario)


def test_a_trace_that_the_caller_does_not_sample_is_not_recorded(play: Play, spans: Spans) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await generate(router, TRACEPARENT[:-1] + "0")
        assert not spans.named(GENERATE)
        assert "traceparent" not in worker.metadata[0]

    play(scenario)


def test_the_span_of_a_failed_request_has_the_error(play: Play, spans: Spans) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        await router.error(generate(router, model="another"))
        (span,) = spans.named(GENERATE)
        assert span.status.status_code is StatusCode.ERROR
        assert "no model 'another'" in str(span.status.description)

    play(scenario)


def test_log_lines_have_the_ids_of_the_span(
    play: Play, spans: Spans, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        await generate(router)

    with configured_logs(LogSettings(format="json")):
        play(scenario)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if '"request"' in line]
    (span,) = spans.named(GENERATE)
    assert f'"trace_id": "{TRACE}"' in line
    assert f'"span_id": "{span.context.span_id:016x}"' in line


@pytest.mark.usefixtures("spans")
def test_exemplars_of_latencies_have_the_ids_of_the_span() -> None:
    registry = CollectorRegistry()

    def call() -> Mapping[str, str]:
        with recorder_of(registry, "demo").record(a_call()) as record:
            record.waits("tiny")
            record.tokens(1)
            return record._span.ids

    # As of a call: in a context of its own.
    ids = contextvars.copy_context().run(call)
    text = generate_latest(registry).decode()
    exemplar = f'# {{span_id="{ids["span_id"]}",trace_id="{ids["trace_id"]}"}}'
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds"):
        lines = [line for line in text.splitlines() if f"{name}_bucket" in line]
        assert sum(exemplar in line for line in lines) == 1


def test_tracing_is_off_by_default(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await generate(router)
        assert "traceparent" not in worker.metadata[0]

    play(scenario)


def test_missing_packages_for_tracing_are_a_startup_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real_import = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    message = (
        r"tracing: opentelemetry.* is not installed; otlp needs shaperouter-service\[tracing\]"
    )
    with pytest.raises(StartupError, match=message):
        tracing.configure_tracing("otlp", role="router")
    tracing.configure_tracing("off", role="router")


def test_a_span_can_start_in_the_past(spans: Spans) -> None:
    came = time.monotonic() - 60
    run = tracing.start_span("run", start=came)
    run.part("queue", came, came + 1)
    run.end()
    (whole,), (part,) = spans.named("run"), spans.named("queue")
    assert whole.start_time is not None
    assert part.start_time is not None
    # Of two readings of the clocks.
    assert abs(whole.start_time - part.start_time) < 1e9

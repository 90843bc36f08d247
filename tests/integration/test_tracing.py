"""One trace from the caller through router and worker, as an OpenTelemetry collector gets it."""

from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2

from harness.service import GOLDENS, LOCAL, Service, kept_compilations, serving
from harness.waiting import wait_until
from shaperouter.v1 import generation_pb2, generation_pb2_grpc

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
REQUEST = "shaperouter.v1.GenerationService/Generate"


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Collects spans, by service."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, trace_pb2.Span]] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.address = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 (gRPC's name)
        for of_resource in request.resource_spans:
            attributes = {a.key: a.value.string_value for a in of_resource.resource.attributes}
            for of_scope in of_resource.scope_spans:
                self.spans += [(attributes["service.name"], span) for span in of_scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()

    def named(self, name: str) -> list[tuple[str, trace_pb2.Span]]:
        return [(service, span) for service, span in self.spans if span.name == name]

    def stop(self) -> None:
        self._server.stop(None).wait()


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.stop()


def test_a_request_is_one_trace_down_to_the_device(collector: Collector) -> None:
    environment = kept_compilations() | {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.address}
    model = f"--model=m={GOLDENS / 'gpt2-untied'}"
    with (
        serving(model, "--tracing=otlp", env=environment) as service,
        grpc.insecure_channel(service.address) as channel,
    ):
        request = generation_pb2.GenerateRequest(
            token_ids=generation_pb2.TokenIds(ids=[1, 2, 3]),
            options=generation_pb2.GenerationOptions(max_new_tokens=5),
        )
        metadata = (("traceparent", f"00-{TRACE}-{PARENT}-01"),)
        stub = generation_pb2_grpc.GenerationServiceStub(channel)
        answer = stub.Generate(request, metadata=metadata, timeout=120)
        # Both are sent when their process ends, at the latest.
        assert service.stop() == 0
        wait_until(lambda: collector.named(REQUEST) and collector.named("run"))
        (line,) = service.events("request")
    (of_router, asked), (of_worker, run) = *collector.named(REQUEST), *collector.named("run")
    assert (of_router, of_worker) == ("shaperouter-router", "shaperouter-worker")
    assert {asked.trace_id.hex(), run.trace_id.hex(), line["trace_id"]} == {TRACE}
    assert asked.parent_span_id.hex() == PARENT
    assert run.parent_span_id == asked.span_id == bytes.fromhex(line["span_id"])
    assert [event.name for event in run.events].count("chunk") >= 1
    timings = answer.completion.timings
    for name, seconds in (
        ("queue", timings.queue_seconds),
        ("prefill", timings.prefill_seconds),
        ("decode", timings.decode_seconds),
    ):
        ((_, part),) = collector.named(name)
        assert part.parent_span_id == run.span_id
        took = (part.end_time_unix_nano - part.start_time_unix_nano) / 1e9
        assert took == pytest.approx(seconds, abs=0.01)
        assert run.start_time_unix_nano - 1e7 <= part.start_time_unix_nano
        assert part.end_time_unix_nano <= run.end_time_unix_nano + 1e7


def test_a_missing_collector_is_logged_in_the_format_of_the_log() -> None:
    # Nobody listens on the port for discarding; spans are sent at once.
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        "OTEL_BSP_SCHEDULE_DELAY": "10",
    }
    router = Service(
        "router",
        "--worker=unix:/nowhere",
        f"--listen={LOCAL}",
        f"--metrics-listen={LOCAL}",
        "--tracing=otlp",
        env=environment,
    )
    try:
        request = generation_pb2.GenerateRequest(text="any")
        with grpc.insecure_channel(router.address) as channel:
            stub = generation_pb2_grpc.GenerationServiceStub(channel)
            call = stub.Generate.future(request)
            wait_until(lambda: router.metric("shaperouter_num_requests_waiting") == 1)
            call.cancel()
        exporter = "opentelemetry.exporter.otlp.proto.grpc.exporter"
        wait_until(lambda: any(line.get("logger") == exporter for line in router.log))
        assert router.stop() == 0
        assert not router.events("not a log line")
    finally:
        router.close()

"""The record of one request: metrics, and a line in the log."""

import contextlib
import time
from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from harness.calls import a_call, recorder_of
from harness.logs import capture_logs
from shaperouter_service.errors import Code, RelayedError
from shaperouter_service.generation.run_events import GraphUse, RunTimings
from shaperouter_service.routing.choice import Decision
from shaperouter_service.routing.decision import Option
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.serving import request_record
from shaperouter_service.serving.request_record import RequestRecord

TIGHT = Signature(model="gpt2", kind=GraphKind.DECODE, rows=1, length=64, beams=1)
DECISION = Decision(
    options=(
        Option(
            worker="worker-3",
            prefill=None,
            decode=TIGHT,
            beams=1,
            tight=TIGHT,
            queue_seconds=0.0,
            stall_seconds=0.0,
            prefill_seconds=0.5,
            decode_seconds=2.5,
            informed=True,
        ),
    )
)

Lines = list[MutableMapping[str, Any]]


class Measured:
    """Request metrics, and how to read them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.recorder = recorder_of(self.registry, "gpt2")

    def record(self) -> RequestRecord:
        record = self.recorder.record(a_call())
        record.waits("gpt2")
        return record

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"shaperouter_{name}", {"model": "gpt2"} | labels)

    @property
    def in_flight(self) -> tuple[float | None, float | None]:
        """Requests that wait, and that run."""
        return self.value("num_requests_waiting"), self.value("num_requests_running")


@contextlib.contextmanager
def ended(record: RequestRecord, code: Code) -> Iterator[RequestRecord]:
    """Has a record's request end with a code."""
    with contextlib.suppress(RelayedError), record:
        yield record
        if code is not Code.OK:
            raise RelayedError(code, "what went wrong")


@pytest.fixture
def measured() -> Measured:
    return Measured()


@pytest.fixture
def lines() -> Iterator[Lines]:
    with capture_logs() as lines:
        yield lines


def signature(length: int, rows: int = 1, kind: GraphKind = GraphKind.DECODE) -> Signature:
    return Signature(model="gpt2", kind=kind, rows=rows, length=length, beams=1)


def completion(*uses: tuple[Signature, Signature, int]) -> dict[str, Any]:
    return {
        "worker": "worker-3",
        "timings": RunTimings(
            queue_seconds=0.25, stall_seconds=1.5, prefill_seconds=0.5, decode_seconds=2.5
        ),
        "graphs": [
            GraphUse(asked=asked, served=served, calls=calls, device_seconds=0.0)
            for asked, served, calls in uses
        ],
    }


def test_a_request_waits_until_its_first_token_and_runs_after_it(measured: Measured) -> None:
    with measured.record() as record:
        waiting = measured.in_flight
        record.tokens(1)
        running = measured.in_flight
        record.tokens(4)
        still_running = measured.in_flight
    assert (waiting, running, still_running) == ((1, 0), (0, 1), (0, 1))


@pytest.mark.parametrize("tokens", [0, 1, 5], ids=["before tokens", "first token", "tokens"])
@pytest.mark.parametrize(
    "code",
    [
        Code.OK,
        Code.CANCELLED,
        Code.DEADLINE_EXCEEDED,
        Code.UNAVAILABLE,
        Code.INTERNAL,
    ],
)
def test_gauges_return_to_zero_however_a_request_ends(
    measured: Measured, lines: Lines, tokens: int, code: Code
) -> None:
    with ended(measured.record(), code) as record:
        for _ in range(tokens):
            record.tokens(1)
    assert measured.in_flight == (0, 0)


@pytest.mark.parametrize("tokens", [0, 1])
def test_gauges_return_to_zero_after_an_exception(
    measured: Measured, lines: Lines, tokens: int
) -> None:
    with contextlib.suppress(GeneratorExit), measured.record() as record:
        for _ in range(tokens):
            record.tokens(1)
        raise GeneratorExit
    assert measured.in_flight == (0, 0)


def test_requests_are_counted_by_code(measured: Measured, lines: Lines) -> None:
    codes = [Code.OK, Code.CANCELLED, Code.OK]
    for code in codes:
        with ended(measured.record(), code):
            pass
    assert measured.value("requests_total", code="OK") == 2
    assert measured.value("requests_total", code="CANCELLED") == 1


@pytest.mark.usefixtures("lines")
@pytest.mark.parametrize(
    ("seconds", "left_at", "code"),
    [
        (10.0, 9.95, Code.DEADLINE_EXCEEDED),
        (10.0, 9.8, Code.CANCELLED),
        (0.1, 0.095, Code.DEADLINE_EXCEEDED),
        (0.1, 0.05, Code.CANCELLED),
        (None, 100.0, Code.CANCELLED),
    ],
)
def test_a_caller_that_leaves_just_before_the_deadline_has_seen_it_pass(
    measured: Measured,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float | None,
    left_at: float,
    code: Code,
) -> None:
    now = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], time=time.time)
    monkeypatch.setattr(request_record, "time", clock)
    call = replace(a_call(), deadline=None if seconds is None else 1000.0 + seconds)
    with contextlib.suppress(GeneratorExit), measured.recorder.record(call) as record:
        record.waits("gpt2")
        now[0] += left_at
        raise GeneratorExit
    assert measured.value("requests_total", code=code.name) == 1


def test_counters_exist_before_the_first_event(measured: Measured) -> None:
    for code in Code:
        assert measured.value("requests_total", code=code.name) == 0
    for name in ("time_to_first_token_seconds_count", "generation_tokens_total"):
        assert measured.value(name) == 0
    assert measured.value("cover_served_total", kind="decode", fit="loose") == 0


def test_requests_in_flight_are_not_counted_as_ended(measured: Measured, lines: Lines) -> None:
    with measured.record():
        assert measured.value("requests_total", code="OK") == 0


def test_tokens_are_counted(measured: Measured, lines: Lines) -> None:
    with measured.record() as record:
        record.prompt(12)
        record.tokens(1)
        record.tokens(4)
    assert measured.value("prompt_tokens_total") == 12
    assert measured.value("generation_tokens_total") == 5
    assert record.generated_tokens == 5


def test_a_model_that_is_no_longer_served_has_no_series_but_counts_in_the_totals(
    measured: Measured, lines: Lines
) -> None:
    metrics = measured.recorder.metrics
    with measured.record() as record:
        record.prompt(12)
        record.tokens(5)
        record.completed(**completion((signature(64), signature(64), 1)))
    before = metrics.counts()
    metrics.keep(["other"])
    assert "gpt2" not in metrics.totals
    labels = [each.labels for family in measured.registry.collect() for each in family.samples]
    assert not [each for each in labels if each.get("model") == "gpt2"]
    assert metrics.counts() == before
    metrics.begin("gpt2")
    with measured.record():
        pass
    assert measured.value("requests_total", code="OK") == 1
    assert metrics.counts().ended == before.ended + 1


def test_only_the_first_token_is_a_time_to_first_token(measured: Measured, lines: Lines) -> None:
    with measured.record() as record:
        record.tokens(1)
        record.tokens(4)
    assert measured.value("time_to_first_token_seconds_count") == 1


def test_every_later_token_has_a_latency(measured: Measured, lines: Lines) -> None:
    with measured.record() as record:
        record.tokens(1)
        record.tokens(4)
        record.tokens(2)
    assert measured.value("inter_token_latency_seconds_count") == 6


def test_latencies_are_between_tokens_of_one_sequence(measured: Measured, lines: Lines) -> None:
    with measured.record() as record:
        record.tokens(1, sequence=0)
        record.tokens(1, sequence=1)
        record.tokens(2, sequence=0)
        record.tokens(3, sequence=1)
    assert measured.value("time_to_first_token_seconds_count") == 1
    assert measured.value("inter_token_latency_seconds_count") == 5
    assert record.generated_tokens == 7


def test_stalls_are_left_out_of_the_time_of_decoding(
    measured: Measured, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("shaperouter_service.telemetry.progress.time.monotonic", lambda: now)
    with measured.record() as record:
        record.stalls()
        now = 102.0
        record.tokens(1)
        now = 103.0
        record.stalls()
        now = 107.0
        record.tokens(1)
        progress = record.progress(0)
        assert (progress.stall_seconds, progress.decode_seconds) == (6.0, 1.0)
        assert record.progress(1).decode_seconds == 0.0


def test_latencies_of_tokens_add_up_to_the_time_of_decoding(
    measured: Measured, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("shaperouter_service.serving.request_record.time.monotonic", lambda: now)
    with measured.record() as record:
        now = 101.0
        record.tokens(1)
        now = 103.0
        record.tokens(4)
        now = 104.0
        record.tokens(1)
        now = 104.5
    assert measured.value("time_to_first_token_seconds_sum") == 1.0
    assert measured.value("inter_token_latency_seconds_sum") == pytest.approx(3.0)
    assert measured.value("e2e_request_latency_seconds_sum") == 4.5
    assert record.time_to_first_token == 1.0


@pytest.mark.parametrize("code", [Code.OK, Code.UNAVAILABLE])
def test_every_end_has_a_latency(measured: Measured, lines: Lines, code: Code) -> None:
    with ended(measured.record(), code):
        pass
    assert measured.value("e2e_request_latency_seconds_count") == 1


def test_queue_time_is_the_workers(measured: Measured, lines: Lines) -> None:
    with measured.record() as record:
        record.completed(**completion((signature(64), signature(64), 1)))
    assert measured.value("request_queue_time_seconds_sum") == 0.25


def test_an_unreported_queue_time_is_not_counted(measured: Measured, lines: Lines) -> None:
    with measured.record() as record:
        record.completed(**completion())
    assert not measured.value("request_queue_time_seconds_count")


def test_covers_are_tight_or_loose(measured: Measured, lines: Lines) -> None:
    with measured.record() as record:
        record.completed(
            **completion(
                (signature(16, kind=GraphKind.PREFILL), signature(16, kind=GraphKind.PREFILL), 1),
                (signature(64), signature(64), 3),
                (signature(64), signature(128), 2),
                (signature(64), signature(64, rows=4), 5),
            )
        )
    assert measured.value("cover_served_total", kind="prefill", fit="tight") == 1
    assert measured.value("cover_served_total", kind="decode", fit="tight") == 3
    assert measured.value("cover_served_total", kind="decode", fit="loose") == 7


def test_the_time_until_it_is_routed_ends_with_its_first_worker(
    measured: Measured, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("shaperouter_service.serving.request_record.time.monotonic", lambda: now)
    with measured.record() as record:
        assert record.route_seconds == 0.0
        now = 105.5
        record.routed(DECISION, "")
        now = 107.0
        record.routed(DECISION, "")
    assert record.route_seconds == 5.5
    assert lines[0]["route_seconds"] == 5.5


def test_the_line_of_a_request_that_was_not_routed_has_no_route(
    measured: Measured, lines: Lines
) -> None:
    with measured.record():
        pass
    assert not {"route", "route_seconds"} & lines[0].keys()


def test_one_line_is_logged_for_a_request(measured: Measured, lines: Lines) -> None:
    with measured.record() as record:
        record.prompt(12)
        record.worker = "worker-3"
        record.stalls()
        record.tokens(5)
        record.completed(**completion((signature(64), signature(128, rows=4), 2)))
    (line,) = lines
    told = {
        "request_id": "request-7",
        "model": "gpt2",
        "code": "OK",
        "prompt_tokens": 12,
        "generated_tokens": 5,
        "queue_seconds": 0.25,
        "stall_seconds": 1.5,
        "prefill_seconds": 0.5,
        "decode_seconds": 2.5,
        "worker": "worker-3",
        "graphs": ["gpt2 decode 4x128"],
        "log_level": "info",
    }
    assert {key: line[key] for key in told} == told
    assert "error" not in line


@pytest.mark.parametrize(
    ("code", "level"),
    [(Code.INTERNAL, "error"), (Code.RESOURCE_EXHAUSTED, "warning")],
)
def test_the_line_of_a_failure_tells_the_error(
    measured: Measured, lines: Lines, code: Code, level: str
) -> None:
    with ended(measured.record(), code):
        pass
    (line,) = lines
    assert (line["log_level"], line["error"]) == (level, "what went wrong")

"""The error about a deadline on a worker says what the run waited for."""

import asyncio
import re
import threading

import pytest

from harness.engine import GOLDENS, TIMEOUT, Bench
from harness.waiting import wait_until
from shaperouter.v1 import worker_pb2
from shaperouter_service.compile_cache import CompileCache
from shaperouter_service.errors import DeadlinePassedError
from shaperouter_service.graphs.builder import Builder
from shaperouter_service.graphs.tracer import Tracer
from shaperouter_service.wire.run_requests import run_request_from_message
from shaperouter_service.worker.runner import Runner

MODEL = "gpt2-untied"
MODELS = {MODEL: GOLDENS / MODEL}


def error_of_a_deadline(bench: Bench, *, seconds: float) -> str:
    """The error of a run that does not end within a deadline."""

    async def run() -> None:
        runner = Runner(bench.engine, asyncio.get_running_loop())
        options = worker_pb2.RunOptions(
            max_new_tokens=9, num_beams=1, num_return_sequences=1, temperature=1.0
        )
        request = worker_pb2.RunRequest(model=MODEL, token_ids=[3], options=options)
        await runner.run(run_request_from_message(request), seconds, lambda _: None)

    with pytest.raises(DeadlinePassedError) as error:
        asyncio.run(run())
    wait_until(lambda: not any(lane.backlog.tokens for lane in bench.parts.lanes.values()))
    return str(error.value)


@pytest.fixture(scope="module")
def bench(kept_compilations: CompileCache) -> Bench:
    bench = Bench(MODELS, compile_cache=kept_compilations)
    wait_until(lambda: bench.engine.warm, timeout=TIMEOUT)
    return bench


def test_a_compilation_of_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()

    def trace(tracer: Tracer, builder: Builder, taken: float) -> float:
        assert goes_on.wait(TIMEOUT)
        return really_trace(tracer, builder, taken)

    really_trace = Tracer.trace
    monkeypatch.setattr(Tracer, "trace", trace)
    starting = Bench(MODELS)
    told = error_of_a_deadline(starting, seconds=5.0)
    assert re.search(
        rf"waited [\d.]+ s for {MODEL} prefill 1x128 to be compiled, while its worker was still "
        r"starting \(0 of 2 graphs were made, about \d+ s left\)$",
        told,
    )
    goes_on.set()
    starting.stop_compiling()


def test_a_compilation_after_the_warm_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = bench.parts.lanes[MODEL, 1]
    graph = bench.parts.graphs.graph(lane.ladders.first_decode(MODEL, 1))
    monkeypatch.setattr(lane.covers, "missing", lambda _: graph)
    told = error_of_a_deadline(bench, seconds=5.0)
    assert re.search(rf"waited [\d.]+ s for {MODEL} decode 1x128 to be compiled$", told)


def test_the_queue(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.parts.lanes[MODEL, 1], "admit", lambda: None)
    told = error_of_a_deadline(bench, seconds=5.0)
    assert re.search(r"waited [\d.]+ s in the queue for a slot$", told)


@pytest.mark.parametrize(
    ("step", "told"),
    [("read", "was to read its prompt"), ("decode", "was to make its tokens")],
)
def test_the_device(bench: Bench, monkeypatch: pytest.MonkeyPatch, step: str, told: str) -> None:
    monkeypatch.setattr(bench.parts.lanes[MODEL, 1], step, lambda _: False)
    assert f"waited for the device, which {told} (0 tokens" in error_of_a_deadline(
        bench, seconds=5.0
    )

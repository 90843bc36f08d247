"""Metrics of gRPC calls, by method and status code."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2

from harness.fake_worker import FakeWorker
from harness.router import Play, Router, read_events, wait_until
from harness.waiting import TIMEOUT
from shaperouter.v1 import model_pb2

GENERATION = "shaperouter.v1.GenerationService"


def count(router: Router, what: str, method: str, code: str = "", kind: str = "unary") -> float:
    service, _, name = method.rpartition("/")
    labels = {"grpc_type": kind, "grpc_service": service, "grpc_method": name}
    labels |= {"grpc_code": code} if code else {}
    return router.registry.get_sample_value(f"grpc_server_{what}", labels) or 0


def test_calls_are_counted_by_method_and_code(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        await router.generate()
        await router.error(router.generate(model="another"))
        await read_events(router.stream())
        worker.script = [ValueError("a defect")]
        await router.error(router.generate())
        generate = f"{GENERATION}/Generate"
        # A status that refuses a call reaches the client before the router counts the call.
        await wait_until(lambda: count(router, "handling_seconds_count", generate) == 3)
        assert count(router, "started_total", generate) == 3
        assert count(router, "handled_total", generate, "OK") == 1
        assert count(router, "handled_total", generate, "NOT_FOUND") == 1
        assert count(router, "handled_total", generate, "INTERNAL") == 1
        stream = f"{GENERATION}/GenerateStream"
        assert count(router, "handled_total", stream, "OK", kind="server_stream") == 1

    play(scenario)


def test_counts_of_all_codes_start_at_zero(play: Play) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        labels = {"grpc_type": "unary", "grpc_service": GENERATION, "grpc_method": "Generate"}
        for code in grpc.StatusCode:
            with_code = labels | {"grpc_code": code.name}
            assert router.registry.get_sample_value("grpc_server_handled_total", with_code) == 0
        assert router.registry.get_sample_value("grpc_server_handling_seconds_count", labels) == 0

    play(scenario)


def test_a_cancelled_call_is_counted_as_cancelled(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        worker.script.insert(0, worker.hold)
        call = asyncio.ensure_future(router.generate())
        await wait_until(lambda: worker.running == 1)
        call.cancel()
        generate = f"{GENERATION}/Generate"
        await wait_until(lambda: count(router, "handled_total", generate, "CANCELLED") == 1)

    play(scenario)


def test_a_refused_call_is_counted(play: Play, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text("[clients]")

    async def scenario(router: Router, _: FakeWorker) -> None:
        await router.error(router.models.ListModels(model_pb2.ListModelsRequest()))
        method = "shaperouter.v1.ModelService/ListModels"
        await wait_until(lambda: count(router, "handled_total", method, "UNAUTHENTICATED") == 1)

    play(scenario, settings={"tokens": tokens})


def test_probes_and_unknown_methods_are_not_counted(play: Play) -> None:
    async def scenario(router: Router, _: FakeWorker) -> None:
        await router.health.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT)
        await router.error(router.channel.unary_unary("/a.Service/Method")(b""))
        names = {
            sample.labels["grpc_service"]
            for family in router.registry.collect()
            for sample in family.samples
            if family.name == "grpc_server_started"
        }
        assert names
        assert not names & {"grpc.health.v1.Health", "a.Service"}

    play(scenario)

"""Warming that makes no sense is refused, and says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc import StatusCode, aio
from grpc_health.v1 import health_pb2

from harness.warming import DECODE, shape, warm
from shaperouter.v1 import graph_pb2, signature_pb2

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router

RetrySeconds = Callable[[aio.AioRpcError], float]
Detail = Callable[[aio.AioRpcError, type[Message]], Any]

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.mark.parametrize(
    ("signature", "field", "description"),
    [
        (
            shape(16, kind=0),
            "kind",
            "must be one of prefill, decode, score (kinds of graphs of tiny), got 0",
        ),
        (shape(16, beams=2), "beams", "must be one of 1 (beam widths of prefill of tiny), got 2"),
        (
            shape(17),
            "length",
            "must be one of 16, 24, 40, 64 (lengths of prefill of tiny), got 17",
        ),
        (
            shape(64, rows=2),
            "rows",
            "must be one of 1 (rows of prefill of length 64 of tiny), got 2",
        ),
        (
            shape(16, kind=DECODE, beams=3),
            "beams",
            "must be one of 1, 4 (beam widths of decode of tiny), got 3",
        ),
        (
            shape(16, kind=DECODE, rows=3),
            "rows",
            "must be one of 1, 2, 4 (rows of decode beams 1 of length 16 of tiny), got 3",
        ),
        (
            shape(64, kind=DECODE, beams=4),
            "length",
            "must be one of 16, 32, 256 (lengths of decode beams 4 of tiny), got 64",
        ),
    ],
)
def test_a_signature_off_the_ladders_is_refused(
    play: Play, detail: Detail, signature: signature_pb2.Signature, field: str, description: str
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        error = await router.error(warm(router, shape(16), signature))
        assert error.code() is StatusCode.INVALID_ARGUMENT
        (violation,) = detail(error, error_details_pb2.BadRequest).field_violations
        assert violation.field == f"signatures[1].{field}"
        assert violation.description == description
        assert worker.wanted == []

    play(scenario)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"signatures": []}, "signatures: must have from 1 to 1000 signatures, got 0"),
        (
            {"signatures": [shape(16)] * 1001},
            "signatures: must have from 1 to 1000 signatures, got 1001",
        ),
        (
            {"signatures": [shape(16)], "workers": ["worker-0", "gpu-7"]},
            "workers[1]: must be one of worker-0, worker-1 (workers that have tiny), got 'gpu-7'",
        ),
        (
            {"signatures": [shape(16)], "workers": ["worker-1", "worker-0", "worker-1"]},
            "workers[2]: must name each worker only once, got 'worker-1' again",
        ),
        (
            {"signatures": [shape(16)], "workers": ["worker-0"], "all_workers": True},
            "all_workers: must not be set together with workers",
        ),
    ],
)
def test_a_wrong_request_is_refused(play: Play, fields: dict[str, Any], told: str) -> None:
    async def scenario(router: Router, *workers: FakeWorker) -> None:
        call = router.graphs.WarmGraphs(graph_pb2.WarmGraphsRequest(**fields))
        error = await router.error(call)
        assert (error.code(), error.details()) == (StatusCode.INVALID_ARGUMENT, told)

    play(scenario, workers=2)


def test_of_many_wrong_signatures_the_first_are_told(play: Play, detail: Detail) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        error = await router.error(warm(router, *[shape(17)] * 1000))
        violations = detail(error, error_details_pb2.BadRequest).field_violations
        assert [violation.field for violation in violations] == [
            f"signatures[{index}].length" for index in range(3)
        ]

    play(scenario)


def test_warming_an_unknown_model_is_not_found(play: Play) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        error = await router.error(warm(router, shape(16, model="gpt3")))
        assert error.code() is StatusCode.NOT_FOUND

    play(scenario)


def test_a_model_without_a_worker_cannot_be_warmed_yet(
    play: Play, retry_seconds: RetrySeconds
) -> None:
    async def scenario(router: Router, worker: FakeWorker) -> None:
        error = await router.error(warm(router, shape(16)))
        assert error.code() is StatusCode.UNAVAILABLE
        assert retry_seconds(error) > 0
        await worker.start()
        await router.wait_for_health("readiness", SERVING)
        await worker.kill()
        await router.wait_for_health("readiness", NOT_SERVING)
        error = await router.error(warm(router, shape(16)))
        assert error.code() is StatusCode.UNAVAILABLE

    play(scenario, started=False)

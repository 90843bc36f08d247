"""Health on a port of its own, for probes that speak neither TLS nor have tokens."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from harness.certificates import Authority
from harness.fake_worker import FakeWorker
from harness.router import PATIENCE, Play, Router
from shaperouter.v1 import model_pb2, model_pb2_grpc

SERVING = health_pb2.HealthCheckResponse.SERVING


def test_probes_in_plain_text_reach_a_service_with_tls_and_tokens(
    play: Play, sockets: Path, tmp_path: Path, free_address: str
) -> None:
    authority = Authority(tmp_path)
    tokens = tmp_path / "tokens.toml"
    tokens.write_text("[clients]")

    async def scenario(_: Router, worker: FakeWorker) -> None:
        async with aio.insecure_channel(f"unix:{sockets / 'health'}") as channel:
            probe = health_pb2_grpc.HealthStub(channel)
            for service in ("", "liveness", "readiness"):
                request = health_pb2.HealthCheckRequest(service=service)
                assert (await probe.Check(request, timeout=PATIENCE)).status == SERVING
            with pytest.raises(aio.AioRpcError) as error:
                await model_pb2_grpc.ModelServiceStub(channel).ListModels(
                    model_pb2.ListModelsRequest(), timeout=PATIENCE
                )
            assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
            await worker.drain()
            async for response in probe.Watch(health_pb2.HealthCheckRequest(service="readiness")):
                if response.status != SERVING:
                    break

    play(
        scenario,
        listen=free_address,
        settings={
            "health_listen": f"unix:{sockets / 'health'}",
            "tls": authority.server(),
            "tokens": tokens,
        },
        credentials=authority.credentials(),
    )

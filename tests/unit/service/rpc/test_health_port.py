"""The health port, for probes without TLS and tokens."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from harness.certificates import Authority
from harness.fake_worker import FakeWorker
from harness.router import Play, Router
from harness.waiting import TIMEOUT
from shaperouter.v1 import model_pb2, model_pb2_grpc
from shaperouter_service.rpc import health as health_module
from shaperouter_service.rpc.health import Health, serving_health

SERVING = health_pb2.HealthCheckResponse.SERVING
# Else all channels to an address share a connection.
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


def test_the_health_port_needs_neither_tls_nor_tokens(
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
                assert (await probe.Check(request, timeout=TIMEOUT)).status == SERVING
            with pytest.raises(aio.AioRpcError) as error:
                await model_pb2_grpc.ModelServiceStub(channel).ListModels(
                    model_pb2.ListModelsRequest(), timeout=TIMEOUT
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


async def closed_by_server(address: str) -> bool:
    """Connects, and tells whether the server closes the connection before it has said a word."""
    reader, writer = await asyncio.open_connection(*address.split(":"))
    try:
        return await asyncio.wait_for(reader.read(1), TIMEOUT) == b""
    except ConnectionResetError:
        return True
    finally:
        writer.close()


def test_connections_beyond_the_limit_are_closed(
    monkeypatch: pytest.MonkeyPatch, free_address: str
) -> None:
    monkeypatch.setattr(health_module, "MAX_CONNECTIONS", 3)

    async def scenario() -> None:
        async with serving_health(Health(), free_address), contextlib.AsyncExitStack() as stack:
            for _ in range(3):
                channel = aio.insecure_channel(free_address, OWN_CONNECTION)
                stack.push_async_callback(channel.close)
                await health_pb2_grpc.HealthStub(channel).Check(
                    health_pb2.HealthCheckRequest(service="liveness"), timeout=TIMEOUT
                )
            assert await closed_by_server(free_address)

    asyncio.run(scenario())


def test_a_long_connection_is_closed(monkeypatch: pytest.MonkeyPatch, free_address: str) -> None:
    monkeypatch.setattr(health_module, "CONNECTION_AGE", 0.1)
    monkeypatch.setattr(health_module, "CONNECTION_GRACE", 5.0)

    async def scenario() -> None:
        async with (
            serving_health(Health(), free_address),
            aio.insecure_channel(free_address) as channel,
        ):
            request = health_pb2.HealthCheckRequest(service="liveness")
            call = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=TIMEOUT)
            assert (await call.read()).status == SERVING
            # Nothing changes, so nothing more is sent.
            with pytest.raises(aio.AioRpcError) as error:
                await call.read()
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE

    asyncio.run(scenario())

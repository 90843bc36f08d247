"""`shaperouterd certificates` writes files that servers and clients accept."""

import asyncio
import stat
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from harness.roles import Run
from harness.waiting import TIMEOUT
from shaperouter_service.errors import StartupError
from shaperouter_service.rpc.health import Health
from shaperouter_service.rpc.server import listen
from shaperouter_service.rpc.tls import ServerTls


def read(directory: Path, name: str) -> bytes:
    return (directory / name).read_bytes()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_client_with_the_certificates_calls_a_server_with_them(
    tmp_path: Path, run: Run, host: str
) -> None:
    directory = tmp_path / "certificates"
    assert run("certificates", str(directory)).exit_code == 0
    tls = ServerTls(
        cert=directory / "server.pem",
        key=directory / "server.key",
        client_ca=directory / "ca.pem",
    )

    async def call() -> int:
        server, health = grpc.aio.server(), Health()
        health.add_to(server)
        port = listen(server, "127.0.0.1:0", tls=tls)
        await server.start()
        health.begin()
        credentials = grpc.ssl_channel_credentials(
            read(directory, "ca.pem"), read(directory, "client.key"), read(directory, "client.pem")
        )
        async with grpc.aio.secure_channel(f"{host}:{port}", credentials) as channel:
            request = health_pb2.HealthCheckRequest(service="liveness")
            answer = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=TIMEOUT)
        await server.stop(None)
        return int(answer.status)

    assert asyncio.run(call()) == health_pb2.HealthCheckResponse.SERVING


def test_only_the_owner_can_read_keys(tmp_path: Path, run: Run) -> None:
    run("certificates", str(tmp_path))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("*.key")}
    assert modes == {"server.key": 0o600, "client.key": 0o600}


def test_the_printed_commands_name_the_files(tmp_path: Path, run: Run) -> None:
    output = run("certificates", str(tmp_path), "--host=gpu.example", "--days=3").output
    assert "valid for 3 days, for gpu.example" in output
    for name in ("ca.pem", "server.pem", "server.key", "client.pem", "client.key"):
        assert f"{tmp_path}/{name}" in output
        assert (tmp_path / name).exists()


def test_a_directory_with_files_is_refused(tmp_path: Path, run: Run) -> None:
    (tmp_path / "server.key").write_text("precious")
    with pytest.raises(StartupError, match="must be an empty directory or not exist"):
        run("certificates", str(tmp_path))
    assert (tmp_path / "server.key").read_text() == "precious"

"""A router and a worker as real processes, with tokens, and TLS on all ports except health."""

import contextlib
import json
import ssl
import subprocess
import sys
from pathlib import Path

import grpc
import httpx2 as httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from harness.certificates import Authority
from harness.ports import unused_ports
from harness.service import GOLDENS, LOCAL, Daemon, Service, kept_compilations
from harness.waiting import TIMEOUT, wait_until
from shaperouter import Client, UnauthenticatedError, UnavailableError

MODEL = f"--model=m={GOLDENS / 'gpt2-untied'}"
SERVING = health_pb2.HealthCheckResponse.SERVING


@pytest.fixture
def ports() -> tuple[int, ...]:
    return unused_ports(3)


def health(port: int) -> int | None:
    """The readiness that a process reports in plain text; None while it does not answer."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            request = health_pb2.HealthCheckRequest(service="readiness")
            return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=5).status)
        except grpc.RpcError:
            return None


def models_over_https(router: Service, authority: Authority, token: str) -> int:
    """The status of a request over HTTPS."""
    return httpx.get(
        f"{router.http_url.replace('http', 'https')}/v1/models",
        headers={"authorization": f"Bearer {token}"},
        verify=ssl.create_default_context(cafile=authority.ca),
        timeout=TIMEOUT,
    ).status_code


def test_everything_is_protected_and_rotates_while_it_runs(
    tmp_path: Path, ports: tuple[int, ...]
) -> None:
    worker_port, worker_health, router_health = ports
    inside, outside = Authority(tmp_path / "inside"), Authority(tmp_path / "outside")
    worker_cert, worker_key = inside.issue("worker")
    router_cert, router_key = inside.issue("router")
    cert, key = outside.issue("server")
    tokens = tmp_path / "tokens.toml"
    made = subprocess.run(
        [sys.executable, "-m", "shaperouter_service", "token", "search"],
        capture_output=True,
        text=True,
        check=True,
    )
    token = made.stdout.strip()
    tokens.write_text(made.stderr)

    with contextlib.ExitStack() as stack:
        worker = Daemon(
            "worker",
            MODEL,
            f"--listen=127.0.0.1:{worker_port}",
            f"--metrics-listen={LOCAL}",
            f"--health-listen=127.0.0.1:{worker_health}",
            f"--tls-cert={worker_cert}",
            f"--tls-key={worker_key}",
            f"--tls-client-ca={inside.ca}",
            env=kept_compilations(),
        )
        stack.callback(worker.close)
        router = Service(
            "router",
            MODEL,
            f"--listen={LOCAL}",
            f"--metrics-listen={LOCAL}",
            f"--health-listen=127.0.0.1:{router_health}",
            f"--tls-cert={cert}",
            f"--tls-key={key}",
            f"--tokens={tokens}",
            f"--worker=localhost:{worker_port}",
            f"--worker-tls-ca={inside.ca}",
            f"--worker-tls-cert={router_cert}",
            f"--worker-tls-key={router_key}",
            "--worker-tls-name=127.0.0.1",
        )
        stack.callback(router.close)
        router.wait_until_ready()
        wait_until(lambda: health(worker_health) == health(router_health) == SERVING)

        with Client(router.address, ca=outside.ca, token=token) as client:
            assert len(client.generate([1, 2, 3], max_new_tokens=4).token_ids) == 4
            assert models_over_https(router, outside, token) == 200
            assert models_over_https(router, outside, "another") == 401
            # Another authority, and another token.
            new = Authority(tmp_path / "new")
            for fresh, old in zip(new.issue("server"), (cert, key), strict=True):
                fresh.replace(old)
            with (
                Client(router.address, ca=outside.ca, token=token) as stranger,
                pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"),
            ):
                stranger.models(timeout=TIMEOUT)
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                models_over_https(router, outside, token)
            assert models_over_https(router, new, token) == 200
            with Client(router.address, ca=new.ca, token=token) as renewed:
                assert renewed.models()
                tokens.write_text("[clients]")
                with pytest.raises(UnauthenticatedError, match="the token is not known"):
                    renewed.models()
                with pytest.raises(UnauthenticatedError):
                    client.models()
        assert worker.stop() == 0
        wait_until(lambda: health(router_health) != SERVING)
        log = json.dumps([*router.log, *worker.log])
    assert token not in log
    assert "PRIVATE KEY" not in log

"""A service that logs in JSON writes only JSON, even on errors."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.certificates import Authority
from harness.service import Daemon, daemon
from harness.waiting import TIMEOUT
from shaperouter_service.system.process import EXIT_CONFIG

COMMAND = Path(sys.executable).with_name("shaperouter")
ROUTER = ("router", "--metrics-listen=127.0.0.1:0", "--worker=127.0.0.1:1")


@pytest.mark.parametrize("option", ["--listen", "--metrics-listen", "--health-listen"])
def test_a_port_in_use_is_logged_in_json_only(option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        process = daemon(
            *ROUTER, "--listen=127.0.0.1:0", f"{option}={address}", "--log-format=json"
        )
        _, output = process.communicate(timeout=TIMEOUT)
    lines: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines()]
    assert process.returncode == EXIT_CONFIG
    assert lines[-1]["event"] == "not started"
    assert lines[-1]["error"].startswith(f"{option[2:]}: cannot listen on {address}")


def test_connections_without_tls_log_only_json(tmp_path: Path) -> None:
    cert, key = Authority(tmp_path).issue()
    router = Daemon(*ROUTER, "--listen=127.0.0.1:0", f"--tls-cert={cert}", f"--tls-key={key}")
    try:
        port = router.wait_for_log("listening")["grpc_port"]
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            while connection.recv(1024):
                pass
        environment = os.environ.keys() - {"GRPC_VERBOSITY"}
        client = subprocess.run(
            [COMMAND, "--address", f"127.0.0.1:{port}", "models"],
            env={name: os.environ[name] for name in environment},
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        assert client.returncode == 1
        assert len(client.stderr.splitlines()) == 1, client.stderr
        assert "Perhaps TLS is on at one end alone" in client.stderr
        assert router.stop() == 0
    finally:
        router.close()
    assert not router.events("not a log line")


def test_on_a_terminal_a_failed_start_prints_plain_text() -> None:
    process: subprocess.Popen[str] = daemon(*ROUTER, "--listen=nowhere", "--log-format=console")
    _, output = process.communicate(timeout=TIMEOUT)
    assert output.splitlines()[-1].startswith("shaperouterd: listen: must be HOST:PORT")

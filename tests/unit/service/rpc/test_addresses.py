"""Addresses as users write them."""

import socket

import pytest

from shaperouter_service.errors import StartupError
from shaperouter_service.rpc.addresses import split_address, worker_name


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("127.0.0.1:9464", "127.0.0.1", 9464),
        ("localhost:0", "localhost", 0),
        ("[::1]:65535", "::1", 65535),
        ("metrics.example:80", "metrics.example", 80),
    ],
)
def test_an_address_is_split_into_host_and_port(address: str, host: str, port: int) -> None:
    assert split_address(address, option="metrics-listen") == (host, port)


@pytest.mark.parametrize(
    "address", ["", "9464", ":9464", "host", "host:", "host:port", "host:65536", "host:-1"]
)
def test_an_invalid_address_is_refused_with_the_option_and_the_value(address: str) -> None:
    with pytest.raises(StartupError, match="metrics-listen") as refusal:
        split_address(address, option="metrics-listen")
    assert repr(address) in str(refusal.value)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("127.0.0.1:50052", "box:50052"),
        ("[::]:50053", "box:50053"),
        ("unix:/run/a/worker.sock", "box:/run/a/worker.sock"),
    ],
)
def test_a_workers_default_name_is_its_host_and_port_or_path(
    address: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "box")
    assert worker_name(address) == name

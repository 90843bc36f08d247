"""Addresses as users write them."""

import pytest

from shaperouter_service.addresses import split_address
from shaperouter_service.errors import StartupError


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("127.0.0.1:9464", "127.0.0.1", 9464),
        ("localhost:0", "localhost", 0),
        ("[::1]:65535", "::1", 65535),
        ("metrics.example:80", "metrics.example", 80),
    ],
)
def test_host_and_port(address: str, host: str, port: int) -> None:
    assert split_address(address, option="metrics-listen") == (host, port)


@pytest.mark.parametrize(
    "address", ["", "9464", ":9464", "host", "host:", "host:port", "host:65536", "host:-1"]
)
def test_anything_else_is_refused_with_the_option_and_the_value(address: str) -> None:
    with pytest.raises(StartupError, match="metrics-listen") as refusal:
        split_address(address, option="metrics-listen")
    assert repr(address) in str(refusal.value)

"""Warnings about ports that other machines can reach without protection."""

from pathlib import Path

import pytest

from harness.logs import capture_logs
from shaperouter_service.roles.public_ports import warn_of_public_server, warn_of_public_worker
from shaperouter_service.rpc.addresses import is_public
from shaperouter_service.rpc.tls import ServerTls

PUBLIC = "0.0.0.0:50051"
LOCAL = "127.0.0.1:50051"
TLS = ServerTls(cert=Path("cert"), key=Path("key"), client_ca=None)
MUTUAL = ServerTls(cert=Path("cert"), key=Path("key"), client_ca=Path("ca"))
TOKENS = Path("tokens")

PLAIN_TEXT = "other machines can reach this port in plain text"
PLAIN_TOKENS = "tokens travel in plain text"
EVERYBODY = "anyone who can reach this port may call it"


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("0.0.0.0:1", True),
        ("[::]:1", True),
        ("192.0.2.7:1", True),
        ("no-such-host.invalid:1", True),
        ("127.0.0.1:1", False),
        ("127.1.2.3:1", False),
        ("[::1]:1", False),
        ("localhost:1", False),
        ("unix:/run/s", False),
        ("unix-abstract:s", False),
    ],
)
def test_addresses_of_this_machine_are_not_public(address: str, public: bool) -> None:
    assert is_public(address) is public


@pytest.mark.parametrize(
    ("address", "tls", "tokens", "warnings"),
    [
        (PUBLIC, None, None, [PLAIN_TEXT, EVERYBODY]),
        (PUBLIC, None, TOKENS, [PLAIN_TOKENS]),
        (PUBLIC, TLS, None, [EVERYBODY]),
        (PUBLIC, TLS, TOKENS, []),
        (PUBLIC, MUTUAL, None, []),
        (LOCAL, None, None, []),
        (LOCAL, None, TOKENS, [PLAIN_TOKENS]),
        ("unix:/run/s", None, None, []),
    ],
)
def test_a_router_warns_of_missing_protection(
    address: str, tls: ServerTls | None, tokens: Path | None, warnings: list[str]
) -> None:
    with capture_logs() as lines:
        warn_of_public_server(address, protocol="grpc", tls=tls, tokens=tokens)
    assert [line["event"].partition(":")[0] for line in lines] == warnings
    assert {line["grpc"] for line in lines} <= {address}


@pytest.mark.parametrize(
    ("address", "tls", "warned"),
    [(PUBLIC, None, True), (PUBLIC, TLS, True), (PUBLIC, MUTUAL, False), (LOCAL, None, False)],
)
def test_a_worker_warns_if_anyone_can_call_it(
    address: str, tls: ServerTls | None, warned: bool
) -> None:
    with capture_logs() as lines:
        warn_of_public_worker(address, tls=tls)
    assert [line["log_level"] for line in lines] == ["warning"] * warned

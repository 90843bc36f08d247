"""TLS settings of new connections over HTTP, from files that may be replaced."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from harness.certificates import HOST, Authority
from shaperouter_service.rpc.tls import ServerTls

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ours")


def client_of(
    authority: Authority, version: ssl.TLSVersion, *, certificate: bool
) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca)
    context.minimum_version = context.maximum_version = version
    if certificate:
        context.load_cert_chain(*authority.issue("client"))
    return context


def connected(
    server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> ssl.SSLObject:
    """A client's side of a new connection on which the server has answered.

    Raises:
        ssl.SSLError: One side refuses the other.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = server.wrap_bio(to_server, to_client, server_side=True)
    calling = client.wrap_bio(to_client, to_server, server_hostname=HOST, session=session)

    def steps() -> None:
        for side in (calling, serving):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue

    for _ in range(4):
        steps()
    # A session comes with the first bytes.
    serving.write(b"answer")
    assert calling.read(6) == b"answer"
    return calling


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_a_session_does_not_keep_an_authority_trusted(
    authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    trusted = tmp_path / "clients.pem"
    trusted.write_bytes(authority.ca.read_bytes())
    contexts = authority.server(client_ca=trusted).contexts()
    client = client_of(authority, version, certificate=True)
    session = connected(contexts(), client).session
    trusted.write_bytes(Authority(tmp_path / "theirs").ca.read_bytes())
    with pytest.raises(ssl.SSLError, match="certificate verify failed"):
        connected(contexts(), client, session)


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_a_client_with_a_certificate_gets_no_ticket(
    authority: Authority, version: ssl.TLSVersion
) -> None:
    contexts = authority.server(client_ca=authority.ca).contexts()
    session = connected(contexts(), client_of(authority, version, certificate=True)).session
    assert session is None or not session.has_ticket


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_sessions_of_other_clients_are_resumed(
    authority: Authority, version: ssl.TLSVersion
) -> None:
    contexts = authority.server().contexts()
    client = client_of(authority, version, certificate=False)
    first = connected(contexts(), client)
    assert connected(contexts(), client, first.session).session_reused


def test_a_file_of_authorities_may_have_comments_in_any_script(
    authority: Authority, tmp_path: Path
) -> None:
    trusted = tmp_path / "clients.pem"
    trusted.write_bytes("# Autorité\n".encode() + authority.ca.read_bytes())
    cert, key = authority.issue()
    contexts = ServerTls(cert=cert, key=key, client_ca=trusted).contexts()
    connected(contexts(), client_of(authority, VERSIONS[1], certificate=True))

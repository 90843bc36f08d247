"""Certificates of a test authority, in files like those of operators."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import grpc
import trustme

from shaperouter_service.rpc.tls import ServerTls, WorkerTls

HOST = "127.0.0.1"


class Authority:
    """A certificate authority, and the files of the certificates that it issues."""

    def __init__(self, directory: Path) -> None:
        self._ca = trustme.CA()
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.ca = directory / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.ca))

    def issue(
        self, name: str = "server", *, host: str = HOST, expired: bool = False
    ) -> tuple[Path, Path]:
        """Writes a certificate for a host and its key, replacing earlier ones."""
        now = dt.datetime.now(dt.UTC)
        day = dt.timedelta(days=1)
        issued = self._ca.issue_cert(
            host, not_before=now - 2 * day, not_after=now - day if expired else now + day
        )
        cert, key = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        cert.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(key))
        return cert, key

    def server(self, *, client_ca: Path | None = None) -> ServerTls:
        """The credentials of a server with a certificate of this authority."""
        cert, key = self.issue()
        return ServerTls(cert=cert, key=key, client_ca=client_ca)

    def worker_tls(self, name: str = "router", *, expired: bool = False) -> WorkerTls:
        """The credentials of a router that trusts only this authority."""
        cert, key = self.issue(name, expired=expired)
        return WorkerTls(ca=self.ca, cert=cert, key=key, name=HOST)

    def credentials(
        self, *, by: Authority | None = None, expired: bool = False
    ) -> grpc.ChannelCredentials:
        """The credentials of a client that trusts this authority, with a certificate of `by`."""
        if by is None:
            return grpc.ssl_channel_credentials(self.ca.read_bytes())
        cert, key = by.issue("client", expired=expired)
        return grpc.ssl_channel_credentials(
            self.ca.read_bytes(), key.read_bytes(), cert.read_bytes()
        )

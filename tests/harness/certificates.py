"""Certificates of an authority of our own, in files as operators have them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import grpc
import trustme

from shaperouter_service.rpc.tls import ServerTls, WorkerTls

HOST = "127.0.0.1"


class Authority:
    """Someone whose certificates are trusted, and files of those it gives out."""

    def __init__(self, directory: Path) -> None:
        self._ca = trustme.CA()
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.ca = directory / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.ca))

    def issue(
        self, name: str = "server", *, host: str = HOST, expired: bool = False
    ) -> tuple[Path, Path]:
        """Writes a certificate for a host, and its key, in place of those that were there."""
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
        """What a server shows that has a certificate from here."""
        cert, key = self.issue()
        return ServerTls(cert=cert, key=key, client_ca=client_ca)

    def worker_tls(self, name: str = "router", *, expired: bool = False) -> WorkerTls:
        """What a router shows and asks that trusts this authority alone."""
        cert, key = self.issue(name, expired=expired)
        return WorkerTls(ca=self.ca, cert=cert, key=key, name=HOST)

    def credentials(
        self, *, by: Authority | None = None, expired: bool = False
    ) -> grpc.ChannelCredentials:
        """What a client shows and asks that trusts this authority, with a certificate `by` one."""
        if by is None:
            return grpc.ssl_channel_credentials(self.ca.read_bytes())
        cert, key = by.issue("client", expired=expired)
        return grpc.ssl_channel_credentials(
            self.ca.read_bytes(), key.read_bytes(), cert.read_bytes()
        )
